package iptables

import (
	"fmt"
	"net/netip"
	"strings"

	"edgeway/proxiers/plan"
)

// chain is a chain of one table with all of its rules, each the text after "-A NAME ".
type chain struct {
	table, name string
	rules       []string
}

func (c *chain) id() chainID { return chainID{c.table, c.name} }

// chainID names a chain of one family.
type chainID struct{ table, name string }

// Rule texts are made of addresses, numbers, names of ours, and comments that safeText has seen:
// nothing from outside can end a rule or begin another.

func jump(to string) string { return "-j " + to }

func destination(a netip.Addr) string { return "-d " + netip.PrefixFrom(a, a.BitLen()).String() }

func source(p netip.Prefix) string { return "-s " + p.Masked().String() }

// port matches a destination port.
func port(p plan.Protocol, number uint16) string {
	name := protocolName(p)
	return fmt.Sprintf("-p %s -m %s --dport %d", name, name, number)
}

func portRange(p plan.Protocol, first, last uint16) string {
	name := protocolName(p)
	return fmt.Sprintf("-p %s -m %s --dport %d:%d", name, name, first, last)
}

// dnat sends to an endpoint. The protocol has to be named for the port's sake.
func dnat(p plan.Protocol, to netip.AddrPort) string {
	return "-p " + protocolName(p) + " -j DNAT --to-destination " + to.String()
}

// fromLocal matches what comes from an address of this host.
const fromLocal = "-m addrtype --src-type LOCAL"

// interfaceMatch turns "veth*" into iptables' "veth+".
func interfaceMatch(pattern string) string {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		pattern = prefix + "+"
	}
	return "-i " + pattern
}

// rule joins what is not empty.
func rule(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(p)
	}
	return b.String()
}

// maxComment is xt_comment's 256 bytes less the zero at the end.
const maxComment = 255

func comment(text string) string {
	return `-m comment --comment "` + safeText(text) + `"`
}

// safeText leaves letters, digits and a few signs. Kubernetes allows no others in names.
func safeText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" ./:-", r) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), maxComment)]
}

// label is how rules name a ServicePort: "namespace/name:port".
func label(n plan.ServicePortName) string {
	s := n.Namespace + "/" + n.Name
	if n.Port != "" {
		s += ":" + n.Port
	}
	return s
}
