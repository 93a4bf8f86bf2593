package nftables

import (
	"fmt"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// rejectedOnLoopback are the protocols that have no relay: packets to their NodePorts on loopback are
// rejected and counted, in one counter for each protocol and family.
var rejectedOnLoopback = []plan.Protocol{plan.UDP, plan.SCTP}

func loopbackCounter(p plan.Protocol) string { return "loopback-rejected-" + protoName(p) }

// LoopbackRejected implements proxiers.LoopbackRejecter. A table that is not there has counted nothing.
func (p *proxier) LoopbackRejected() ([]proxiers.Rejected, error) {
	c, err := dialNetfilter()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var out []proxiers.Rejected
	for _, f := range p.renderer.families {
		packets, err := c.loopbackCounters(f, p.renderer.table)
		if err != nil {
			return nil, err
		}
		for _, proto := range rejectedOnLoopback {
			out = append(out, proxiers.Rejected{Family: f, Protocol: proto, Packets: packets[loopbackCounter(proto)]})
		}
	}
	return out, nil
}

// loopbackCounters gives the packets of the counters of one table by their names.
func (c *nfConn) loopbackCounters(f plan.Family, table string) (map[string]uint64, error) {
	packets := map[string]uint64{}
	filter := nfnetlink.AppendAttr(nil, unix.NFTA_OBJ_TABLE, table)
	err := c.Dump(unix.NFT_MSG_GETOBJ, nfnetlink.Family(f), filter, func(m nfnetlink.Message) error {
		packets[string(nfnetlink.Text(nfnetlink.Attr(m.Attrs, unix.NFTA_OBJ_NAME)))] = nfnetlink.Uint64(nfnetlink.Attr(nfnetlink.Attr(m.Attrs, unix.NFTA_OBJ_DATA), unix.NFTA_COUNTER_PACKETS))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	return packets, nil
}
