// Package trace finds the nftables rule that drops a connection's packets. The rule may belong to Edgeway or to another
// program.
//
// Package trace adds an nft table that marks a connection's packets for tracing (nft(8), "meta nftrace"). The kernel
// then reports each rule that the packets match. After the trace, the package removes the table. If the process dies
// during a trace, the table remains until the next trace or the next call to Cleanup. The remaining table is harmless,
// because it traces only a connection that no longer exists. The kernel cannot trace iptables-legacy rules, because
// they are not part of nftables.
package trace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/daemon/doctor/nft"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

const (
	// tableName is the name of the trace table, which belongs to the inet family.
	tableName = proxiers.TraceTable
	// replyPrefix is the name prefix of the chains that process reply packets.
	replyPrefix = "answers"
	// leavingChain is the name of the chain for packets that leave this host or are destined for it.
	leavingChain = "leaving"
)

const (
	// maxOutput is the maximum length of nft's output, in bytes.
	maxOutput = 1 << 16
	// maxMessages is the maximum number of kernel messages that a trace collects.
	maxMessages = 20_000
	// idleTime is the time to wait for another kernel message before the trace counts as complete.
	idleTime = 200 * time.Millisecond
	// removeTime is the maximum time for removing the table. Run removes the table even if ctx is done.
	removeTime = 20 * time.Second
	buffer     = 4 << 20
)

// Flow is a connection that this host opens.
type Flow struct {
	Protocol    plan.Protocol // Protocol is TCP or UDP
	Destination netip.AddrPort
	// SourcePort distinguishes the connection from other connections to the same destination.
	SourcePort uint16
}

// Verdict is the result of a trace.
type Verdict struct {
	// If Dropped is false, Run sets only Traced, LeftHost, Answered and Destination.
	Dropped bool
	// Reply reports whether the dropped packet was a reply.
	Reply bool
	// Destination is the dropped packet's destination, possibly after translation. If Dropped is false, Destination is
	// the last known destination of the traced packets.
	Destination netip.AddrPort
	// Family, Table and Chain identify the chain that dropped the packet. Handle is the rule's handle, or 0 for the
	// chain's policy. Rule is the rule's text.
	Family, Table, Chain string
	Handle               uint64
	Rule                 string
	// Traced reports whether the kernel traced any packets. LeftHost reports whether the packets left this host or were
	// destined for it. Answered reports whether this host received a reply packet.
	Traced, LeftHost, Answered bool
}

// Run traces a flow's packets while connect runs. The function connect must open the flow's connection.
func Run(ctx context.Context, flow Flow, connect func(context.Context)) (v Verdict, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return v, fmt.Errorf("netlink socket: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadBuffer(buffer) // after an error, the smaller default buffer must suffice
	if err := conn.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		return v, fmt.Errorf("access to nftables traces (requires CAP_NET_ADMIN): %w", err)
	}
	// Run removes the table even if ctx is cancelled while nft is running, because the kernel may already have
	// committed the transaction.
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	if _, err := nft.Run(ctx, maxOutput, flow.rules(), "-f", "-"); err != nil {
		return v, fmt.Errorf("trace table: %w", err)
	}
	connect(ctx)
	events, err := collect(conn)
	if err != nil {
		return v, err
	}
	v = findDrop(events)
	if v.Dropped && v.Handle != 0 {
		v.Rule = nft.Rule(ctx, v.Family, v.Table, v.Chain, v.Handle)
	}
	return v, nil
}

// rules returns the nft commands that recreate the trace table. The chain called output runs before all other programs'
// chains. The other chains run after connection tracking (-200), because they match the original addresses and ports of
// translated packets. A match in leavingChain shows that packets leave this host or are destined for it.
func (f Flow) rules() string {
	ip, proto := "ip", strings.ToLower(f.Protocol.String())
	if f.Destination.Addr().Is6() {
		ip = "ip6"
	}
	addr := f.Destination.Addr()
	connection := fmt.Sprintf("ct original %s daddr %s meta l4proto %s ct original proto-src %d",
		ip, addr, proto, f.SourcePort)
	return fmt.Sprintf(`table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
	chain output {
		type filter hook output priority -450; policy accept;
		%[3]s daddr %[4]s %[5]s sport %[6]d %[5]s dport %[7]d meta nftrace set 1
	}
	chain loopback {
		type filter hook prerouting priority -199; policy accept;
		ct direction original %[9]s meta nftrace set 1
	}
	chain %[8]s {
		type filter hook postrouting priority 400; policy accept;
		ct direction original %[9]s meta nftrace set 1
	}
	chain %[2]s {
		type filter hook prerouting priority -199; policy accept;
		ct direction reply %[9]s meta nftrace set 1
	}
	chain %[2]s-of-this-host {
		type filter hook output priority -199; policy accept;
		ct direction reply %[9]s meta nftrace set 1
	}
}
`, tableName, replyPrefix, ip, addr, proto, f.SourcePort, f.Destination.Port(), leavingChain,
		connection)
}

// Cleanup removes the nft table that an interrupted trace left behind.
func Cleanup(ctx context.Context) error {
	tables, _, err := nft.Tables()
	if err != nil || !slices.Contains(tables, nft.Table{Family: "inet", Name: tableName}) {
		return err
	}
	return remove(ctx)
}

func remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	// The input declares the table first, because deleting a table that does not exist is an error.
	input := fmt.Sprintf("table inet %[1]s\ndelete table inet %[1]s\n", tableName)
	if _, err := nft.Run(ctx, maxOutput, input, "-f", "-"); err != nil {
		return fmt.Errorf("removal of the trace table (fix: nft delete table inet %s): %w", tableName, err)
	}
	return nil
}

func collect(conn *netlink.Conn) (events []event, err error) {
	for len(events) < maxMessages {
		if err := conn.SetReadDeadline(time.Now().Add(idleTime)); err != nil {
			return nil, err
		}
		messages, err := conn.Receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return events, nil
		case errors.Is(err, unix.ENOBUFS): // some messages are lost, but the others may be sufficient
			continue
		case err != nil:
			return nil, fmt.Errorf("nftables traces: %w", err)
		}
		for _, m := range messages {
			if e, ok := parse(m); ok {
				events = append(events, e)
			}
		}
	}
	return events, nil
}
