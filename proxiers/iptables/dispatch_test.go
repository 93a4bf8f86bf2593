package iptables

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// treeText holds the chains that flush has returned so far.
type treeText map[string][]string

func (kernel treeText) flush(t *testing.T, tr *tree) {
	t.Helper()
	write, gone := tr.flush()
	for _, c := range write {
		if len(c.Name) > 28 {
			t.Errorf("chain name %q is too long", c.Name)
		}
		if !isOwnChain(c.Name) {
			t.Errorf("chain %q is not known as ours", c.Name)
		}
		kernel[c.Name] = c.Rules
	}
	for _, id := range gone {
		delete(kernel, id.Name)
	}
}

func randomDest(r *rand.Rand, kind int) dest {
	proto := []plan.Protocol{plan.TCP, plan.UDP, plan.SCTP}[r.IntN(3)]
	switch kind {
	case 0: // a NodePort
		return dest{proto: proto, port: uint16(30000 + r.IntN(600))}
	case 1:
		return dest{netip.AddrFrom4([4]byte{10, 96, byte(r.IntN(3)), byte(r.IntN(256))}), proto, uint16(80 + r.IntN(3))}
	}
	a := netip.MustParseAddr("fd00:10:96::").As16()
	a[14], a[15] = byte(r.IntN(3)), byte(r.IntN(256))
	return dest{netip.AddrFrom16(a), proto, uint16(80 + r.IntN(3))}
}

// After any sequence of changes, a tree has the same chains as a new tree with the same destinations, and packets to
// each destination reach its rules.
func TestTreeDependsOnlyOnContent(t *testing.T) {
	for kind, name := range []string{"NodePorts", "IPv4", "IPv6"} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(kind)))
			walked, kernel, content := newTree(xtables.NAT, chainExternal), treeText{}, map[dest]int{}
			for round := range 15 {
				target := r.IntN(5) * leafSize * (1 + r.IntN(8))
				for range 400 {
					if p := randomDest(r, kind); len(content) < target {
						walked.add(p, []string{fmt.Sprint(p)})
						content[p]++
					} else if len(content) > target {
						p = slices.SortedFunc(maps.Keys(content), dest.compare)[r.IntN(len(content))]
						walked.remove(p)
						if content[p]--; content[p] == 0 {
							delete(content, p)
						}
					}
				}
				kernel.flush(t, walked)
				fresh, want := newTree(xtables.NAT, chainExternal), treeText{}
				for p := range content {
					fresh.add(p, []string{fmt.Sprint(p)})
				}
				want.flush(t, fresh)
				if !maps.EqualFunc(kernel, want, slices.Equal) {
					t.Fatalf("round %d: with %d places the walked tree has chains\n%v\nand a fresh one\n%v", round,
						len(content), kernel, want)
				}
				for p := range content {
					requireReachable(t, kernel, p)
				}
			}
		})
	}
}

// requireReachable fails the test unless a packet to the destination reaches the destination's rules.
func requireReachable(t *testing.T, kernel treeText, p dest) {
	t.Helper()
	walked := 0
	var follow func(string) bool
	follow = func(name string) bool {
		for _, r := range kernel[name] {
			walked++
			to := xtables.Target(r)
			if to == "" && r == fmt.Sprint(p) || to != "" && matches(t, r, p) && follow(to) {
				return true
			}
		}
		return false
	}
	if !follow(chainExternal) {
		t.Fatalf("%v is not reached", p)
	}
	if walked > 4*leafSize {
		t.Errorf("%v is reached after %d rules", p, walked)
	}
}

func matches(t *testing.T, rule string, p dest) bool {
	t.Helper()
	words := strings.Fields(rule)
	if i := slices.Index(words, "--dport"); i >= 0 {
		var first, last uint16
		if _, err := fmt.Sscanf(words[i+1], "%d:%d", &first, &last); err != nil {
			t.Fatal(rule, err)
		}
		return words[1] == protocolName(p.proto) && first <= p.port && p.port <= last
	}
	value, mask, _ := strings.Cut(words[1], "/")
	v, m, a := netip.MustParseAddr(value).AsSlice(), netip.MustParseAddr(mask).AsSlice(), p.addr.AsSlice()
	for i := range a {
		if a[i]&m[i] != v[i] {
			return false
		}
	}
	return true
}

func TestSmallTreeIsOneChain(t *testing.T) {
	tr, kernel := newTree(xtables.NAT, chainServices), treeText{}
	tr.surround([]string{"first"}, []string{"last"})
	addr := netip.MustParseAddr("10.96.0.1")
	tr.add(dest{addr: addr}, []string{"whole address"})
	for port := range uint16(leafSize - 1) {
		tr.add(dest{addr, plan.TCP, 1 + port}, []string{"port"})
	}
	kernel.flush(t, tr)
	rules := kernel[chainServices]
	if len(kernel) != 1 || len(rules) != leafSize+2 || rules[0] != "first" || rules[leafSize] != "whole address" ||
		rules[leafSize+1] != "last" {
		t.Errorf("chains: %v", kernel)
	}
	if write, remove := tr.flush(); len(write)+len(remove) > 0 {
		t.Errorf("a second flush has %d chains to write and %d to remove", len(write), len(remove))
	}
}

// Two ports of one ClusterIP need the same rule for the address.
func TestTreeCountsUsers(t *testing.T) {
	tr, kernel := newTree(xtables.Filter, chainServices), treeText{}
	whole := dest{addr: netip.MustParseAddr("10.96.0.1")}
	tr.add(whole, []string{"reject"})
	tr.add(whole, []string{"reject"})
	tr.remove(whole)
	kernel.flush(t, tr)
	if got := kernel[chainServices]; !slices.Equal(got, []string{"reject"}) {
		t.Errorf("with one user left: %q", got)
	}
	tr.remove(whole)
	tr.remove(whole)
	kernel.flush(t, tr)
	if got := kernel[chainServices]; len(got) > 0 {
		t.Errorf("with no user left: %q", got)
	}
}
