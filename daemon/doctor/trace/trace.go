// Package trace finds the rule of nftables, ours or another program's, that decides about a connection.
//
// A table of its own marks the packets of that one connection for tracing (nft(8), "meta nftrace"), and the kernel
// tells of each rule that they meet. The table is removed afterwards; one that stays behind because this process was
// killed traces one connection that nobody makes any more, and goes with the next trace or with Cleanup. Rules of
// iptables-legacy are not traced: they are not nftables'.
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

// table is in the inet family. Those of its chains whose name begins with answers meet answers.
const (
	table   = proxiers.TraceTable
	answers = "answers"
	leaving = "leaving"
)

const (
	// maxOutput bounds what nft prints, which is nothing, maxMessages what the kernel tells.
	maxOutput   = 1 << 16
	maxMessages = 20_000
	// rest is how long the kernel's last messages may take. It has sent them when the packet has passed.
	rest = 200 * time.Millisecond
	// removeTime is for the removal of the table, also when there is no time left for anything else.
	removeTime = 20 * time.Second
	buffer     = 4 << 20
)

// Flow is a connection that this host makes.
type Flow struct {
	Protocol plan.Protocol // TCP or UDP
	To       netip.AddrPort
	// From is the port that it is made from.
	From uint16
}

// Verdict is what decided.
type Verdict struct {
	// Dropped is false when all rules have let the packets pass. Then only Seen, Left, Answered and To are set.
	Dropped bool
	// Reply says that it was the answer that was dropped.
	Reply bool
	// To is the packet's destination there, translated or not yet. Where nothing was dropped, it is the destination with
	// which the connection's first packet was seen last.
	To netip.AddrPort
	// Family, Table and Chain are where; Handle is the rule's, 0 for the chain's policy, and Rule its text.
	Family, Table, Chain string
	Handle               uint64
	Rule                 string
	// Seen says that the packets were seen, Left that they left this host or went to itself, and Answered that an answer
	// was seen.
	Seen, Left, Answered bool
}

// Run has the packets traced while connect runs, which makes the connection.
func Run(ctx context.Context, flow Flow, connect func(context.Context)) (v Verdict, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return v, fmt.Errorf("netlink socket: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadBuffer(buffer) // a smaller one has to do
	if err := conn.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		return v, fmt.Errorf("traces of nftables (they need CAP_NET_ADMIN): %w", err)
	}
	// Also when the transaction was interrupted: it may be in force.
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	if _, err := nft.Run(ctx, maxOutput, flow.rules(), "-f", "-"); err != nil {
		return v, fmt.Errorf("table for the trace: %w", err)
	}
	connect(ctx)
	events, err := collect(conn)
	if err != nil {
		return v, err
	}
	v = judge(events)
	if v.Dropped && v.Handle != 0 {
		v.Rule = nft.Rule(ctx, v.Family, v.Table, v.Chain, v.Handle)
	}
	return v, nil
}

// rules make the table anew. The priorities are before all others, and where the address or port may have been
// translated, after connection tracking (-200). The chain leaving sees where the packets go.
func (f Flow) rules() string {
	ip, proto := "ip", strings.ToLower(f.Protocol.String())
	if f.To.Addr().Is6() {
		ip = "ip6"
	}
	addr := f.To.Addr()
	return fmt.Sprintf(`table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
	chain output {
		type filter hook output priority -450; policy accept;
		%[3]s daddr %[4]s %[5]s sport %[6]d %[5]s dport %[7]d meta nftrace set 1
	}
	chain loopback {
		type filter hook prerouting priority -199; policy accept;
		ct direction original ct original %[3]s daddr %[4]s meta l4proto %[5]s ct original proto-src %[6]d meta nftrace set 1
	}
	chain %[8]s {
		type filter hook postrouting priority 400; policy accept;
		ct direction original ct original %[3]s daddr %[4]s meta l4proto %[5]s ct original proto-src %[6]d meta nftrace set 1
	}
	chain %[2]s {
		type filter hook prerouting priority -199; policy accept;
		ct direction reply ct original %[3]s daddr %[4]s meta l4proto %[5]s ct original proto-src %[6]d meta nftrace set 1
	}
	chain %[2]s-of-this-host {
		type filter hook output priority -199; policy accept;
		ct direction reply ct original %[3]s daddr %[4]s meta l4proto %[5]s ct original proto-src %[6]d meta nftrace set 1
	}
}
`, table, answers, ip, addr, proto, f.From, f.To.Port(), leaving)
}

// Cleanup removes what a trace has left.
func Cleanup(ctx context.Context) error {
	tables, _, err := nft.Tables()
	if err != nil || !slices.Contains(tables, nft.Table{Family: "inet", Name: table}) {
		return err
	}
	return remove(ctx)
}

func remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	// Declared first: deleting what does not exist is an error.
	input := fmt.Sprintf("table inet %[1]s\ndelete table inet %[1]s\n", table)
	if _, err := nft.Run(ctx, maxOutput, input, "-f", "-"); err != nil {
		return fmt.Errorf("removal of the table for the trace (remove it by: nft delete table inet %s): %w", table, err)
	}
	return nil
}

// collect reads what the kernel has told.
func collect(conn *netlink.Conn) (events []event, err error) {
	for len(events) < maxMessages {
		if err := conn.SetReadDeadline(time.Now().Add(rest)); err != nil {
			return nil, err
		}
		messages, err := conn.Receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return events, nil
		case errors.Is(err, unix.ENOBUFS): // some are lost: those that are there may be enough
			continue
		case err != nil:
			return nil, fmt.Errorf("traces of nftables: %w", err)
		}
		for _, m := range messages {
			if e, ok := parse(m); ok {
				events = append(events, e)
			}
		}
	}
	return events, nil
}
