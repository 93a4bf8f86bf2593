package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// Messages of ctnetlink (linux/netfilter/nfnetlink_conntrack.h).
const (
	subsystem = 1 << 8 // NFNL_SUBSYS_CTNETLINK
	msgGet    = subsystem | 1
	msgDelete = subsystem | 2
)

// flowsPerWalk is how many flows are read from the kernel in the time of one walk over its hash table,
// about 10 ms (Linux 6.18, 262,144 buckets). Every dump walks it all, however its filter is.
const flowsPerWalk = 2000

// countFile is the number of flows of the opener's network namespace, whatever their protocol.
const countFile = "/proc/sys/net/netfilter/nf_conntrack_count"

// table is the kernel's connection-tracking table, by netlink.
type table struct {
	conn *netlink.Conn
}

// openTable gives access to the table of the current network namespace.
func openTable() (*table, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netfilter netlink: %w", err)
	}
	return &table{conn}, nil
}

// during makes requests fail when ctx ends, until release. That reports false if ctx has ended: then the table is of no
// further use.
func (t *table) during(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() {
		// Only fails when the connection is closed, and then nobody waits.
		_ = t.conn.SetDeadline(time.Now())
	})
}

func (t *table) close() {
	_ = t.conn.Close() // nothing is buffered: there is nothing to lose
}

// deleteStale deletes the stale flows to the given destinations and gives their number.
func (t *table) deleteStale(s scope, rules map[netip.AddrPort]rule) (int, error) {
	var stale []*flow
	collect := func(f *flow) {
		if r, ok := rules[f.orig.dst]; ok && r.stale(f) {
			stale = append(stale, f)
		}
	}
	if len(rules) > 1 && countFlows() <= flowsPerWalk*(len(rules)-1) {
		if err := t.dump(s, netip.AddrPort{}, collect); err != nil {
			return 0, err
		}
	} else {
		for dst := range rules {
			if err := t.dump(s, dst, collect); err != nil {
				return 0, err
			}
		}
	}
	deleted := 0
	for _, f := range stale {
		ok, err := t.delete(s, f)
		if err != nil {
			return deleted, err
		}
		if ok {
			deleted++
		}
	}
	return deleted, nil
}

// countFlows gives 0 if the number is unknown.
func countFlows() int {
	raw, err := os.ReadFile(countFile)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	return n
}

// dump calls fn with each flow of the scope; a valid dst spares most flows to other destinations.
func (t *table) dump(s scope, dst netip.AddrPort, fn func(*flow)) error {
	filter, err := encodeFilter(s, dst)
	if err != nil {
		return fmt.Errorf("encode dump filter: %w", err)
	}
	if _, err := t.conn.Send(s.message(msgGet, netlink.Request|netlink.Dump, filter)); err != nil {
		return fmt.Errorf("ask for flows: %w", err)
	}
	for m, err := range t.conn.ReceiveIter() {
		if err != nil {
			return fmt.Errorf("read flows: %w", err)
		}
		if len(m.Data) < nfgenmsgLen {
			continue // the end of the dump
		}
		f := decodeFlow(m.Data[nfgenmsgLen:])
		// Other zones hold the flows of virtual switches, which translate by rules of their own.
		if f.zone == 0 {
			fn(f)
		}
	}
	return nil
}

// delete reports false when the flow has ended by itself.
func (t *table) delete(s scope, f *flow) (bool, error) {
	data, err := f.encodeDelete(s)
	if err != nil {
		return false, fmt.Errorf("encode flow: %w", err)
	}
	_, err = t.conn.Execute(s.message(msgDelete, netlink.Request|netlink.Acknowledge, data))
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete flow from %s to %s: %w", f.orig.src, f.orig.dst, err)
	}
	return true, nil
}

// nfgenmsgLen is the length of struct nfgenmsg: family, version and resource id.
const nfgenmsgLen = 4

func (s scope) message(kind netlink.HeaderType, flags netlink.HeaderFlags, attrs []byte) netlink.Message {
	header := []byte{s.netfilterFamily(), unix.NFNETLINK_V0, 0, 0}
	return netlink.Message{
		Header: netlink.Header{Type: kind, Flags: flags},
		Data:   append(header, attrs...),
	}
}

func (s scope) netfilterFamily() byte {
	if s.family == plan.IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

func unspecified(s scope) netip.Addr {
	if s.family == plan.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
