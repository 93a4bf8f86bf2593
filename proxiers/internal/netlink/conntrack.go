package netlink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// The kernel defines these ctnetlink message types in linux/netfilter/nfnetlink_conntrack.h.
const (
	subsystem = 1 << 8 // NFNL_SUBSYS_CTNETLINK
	msgGet    = subsystem | 1
	msgDelete = subsystem | 2
)

// Scope restricts a dump to one family and protocol.
type Scope struct {
	Family   plan.Family
	Protocol plan.Protocol
}

// Conntrack accesses the connection-tracking table of a network namespace. Only one goroutine may use a Conntrack at a
// time.
type Conntrack struct {
	conn *netlink.Conn
}

// OpenConntrack opens the connection-tracking table of the current network namespace.
func OpenConntrack() (*Conntrack, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netfilter netlink: %w", err)
	}
	return &Conntrack{conn}, nil
}

// AbortOnDone aborts requests if ctx is done before the caller calls release. If release returns false, ctx is done and
// the Conntrack is no longer usable.
func (t *Conntrack) AbortOnDone(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() {
		// SetDeadline fails only if the socket is closed, in which case there is no request to abort.
		_ = t.conn.SetDeadline(time.Now())
	})
}

// Close closes the socket.
func (t *Conntrack) Close() {
	_ = t.conn.Close() // the socket buffers no outgoing data, so closing it loses none
}

// Dump calls fn for each flow in the scope. If dst is valid, Dump omits most flows to other destinations.
func (t *Conntrack) Dump(s Scope, dst netip.AddrPort, fn func(*Flow)) error {
	filter, err := encodeFilter(s, dst)
	if err != nil {
		return fmt.Errorf("encode dump filter: %w", err)
	}
	return t.dump(s, filter, fn)
}

// DumpOffloaded calls fn for each of the family's offloaded flows.
func (t *Conntrack) DumpOffloaded(family plan.Family, fn func(*Flow)) error {
	filter, err := encodeOffloaded()
	if err != nil {
		return fmt.Errorf("encode dump filter: %w", err)
	}
	return t.dump(Scope{Family: family}, filter, func(f *Flow) {
		if f.Status&statusOffload != 0 { // kernels before 5.15 do not filter by status
			fn(f)
		}
	})
}

func (t *Conntrack) dump(s Scope, filter []byte, fn func(*Flow)) error {
	if _, err := t.conn.Send(s.message(msgGet, netlink.Request|netlink.Dump, filter)); err != nil {
		return fmt.Errorf("request flows: %w", err)
	}
	for m, err := range t.conn.ReceiveIter() {
		if err != nil {
			return fmt.Errorf("read flows: %w", err)
		}
		if len(m.Data) < nfgenmsgLen {
			continue // the end of the dump
		}
		f := decodeFlow(m.Data[nfgenmsgLen:])
		// Flows in connection-tracking zones other than 0 belong to virtual switches, which have their own translation
		// rules.
		if f.Zone == 0 {
			fn(f)
		}
	}
	return nil
}

// Delete deletes a flow. If the flow no longer exists, Delete returns false.
func (t *Conntrack) Delete(s Scope, f *Flow) (bool, error) {
	data, err := f.encodeDelete(s)
	if err != nil {
		return false, fmt.Errorf("encode flow: %w", err)
	}
	_, err = t.conn.Execute(s.message(msgDelete, netlink.Request|netlink.Acknowledge, data))
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deletion of the flow from %s to %s: %w", f.Orig.Src, f.Orig.Dst, err)
	}
	return true, nil
}

// nfgenmsgLen is the length in bytes of struct nfgenmsg, which holds a family, a version and a resource ID.
const nfgenmsgLen = 4

func (s Scope) message(kind netlink.HeaderType, flags netlink.HeaderFlags, attrs []byte) netlink.Message {
	header := []byte{Family(s.Family), unix.NFNETLINK_V0, 0, 0}
	return netlink.Message{
		Header: netlink.Header{Type: kind, Flags: flags},
		Data:   append(header, attrs...),
	}
}

func unspecified(s Scope) netip.Addr {
	if s.Family == plan.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
