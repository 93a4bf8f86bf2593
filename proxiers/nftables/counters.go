package nftables

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// rejectedOnLoopback are the protocols that have no relay: packets to their NodePorts on loopback are
// rejected and counted, in one counter for each protocol and family.
var rejectedOnLoopback = []plan.Protocol{plan.UDP, plan.SCTP}

const loopbackCounterPrefix = "loopback-rejected-"

func loopbackCounter(p plan.Protocol) string { return loopbackCounterPrefix + protoName(p) }

// LoopbackRejected implements proxiers.LoopbackRejecter. It may be called at any time, from any
// goroutine; tables that are not there have counted nothing.
func (p *proxier) LoopbackRejected() (map[plan.Protocol]uint64, error) {
	c, err := dialNetfilter()
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.loopbackRejected(p.renderer.table, p.renderer.families)
}

// loopbackRejected sums up the counters of all families.
func (c *nfConn) loopbackRejected(table string, families []plan.Family) (map[plan.Protocol]uint64, error) {
	packets := map[plan.Protocol]uint64{}
	for _, proto := range rejectedOnLoopback {
		packets[proto] = 0
	}
	for _, f := range families {
		err := c.dump(unix.NFT_MSG_GETOBJ, netlinkFamily(f), appendAttr(nil, unix.NFTA_OBJ_TABLE, table), func(m message) error {
			name, ok := strings.CutPrefix(string(cString(attr(m.attrs, unix.NFTA_OBJ_NAME))), loopbackCounterPrefix)
			if !ok || string(cString(attr(m.attrs, unix.NFTA_OBJ_TABLE))) != table {
				return nil
			}
			if proto, ok := plan.ParseProtocol(strings.ToUpper(name)); ok {
				packets[proto] += be64(attr(attr(m.attrs, unix.NFTA_OBJ_DATA), unix.NFTA_COUNTER_PACKETS))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read counters: %w", err)
		}
	}
	return packets, nil
}

func be64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
