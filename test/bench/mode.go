package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// mode is a way to program the kernel that both programs know.
type mode struct {
	name     string // of the option -mode, and of Edgeway's backend
	peerMode string // kube-proxy's name of it
	// peerPeriod is after how long kube-proxy syncs without a change.
	peerPeriod time.Duration
	sizes      string // numbers of Services, when none are asked for
	// variant is of iptables, as its programs are called: "nft" or "legacy". Empty: another mode.
	variant string
	// whole has all that there is measured, with a bare program beside it.
	whole  bool
	steps  func(*bench) []step
	bounds func(results) []bound
}

// usualPeriod is kube-proxy's default.
const usualPeriod = 30 * time.Second

func modes() []mode {
	return []mode{
		{
			name: "nftables", peerMode: "nftables", peerPeriod: usualPeriod, sizes: "100,1000,10000,30000", whole: true,
			steps: (*bench).nftablesSteps, bounds: results.nftablesBounds,
		},
		iptablesMode("nft", 1.0/2),
		iptablesMode("legacy", 1),
		{
			// A sync of kube-proxy takes so long that one every half minute would fall into every measurement.
			name: ipvsName, peerMode: "ipvs", peerPeriod: time.Hour, sizes: "100,1000,5000",
			steps: (*bench).ipvsSteps, bounds: results.ipvsBounds,
		},
	}
}

// iptablesMode measures less: what is bound, and what comes with it at no cost of time.
func iptablesMode(variant string, firstSyncLimit float64) mode {
	return mode{
		name: "iptables-" + variant, peerMode: "iptables", peerPeriod: usualPeriod, sizes: "5000,10000", variant: variant,
		steps: (*bench).iptablesSteps, bounds: func(r results) []bound { return r.iptablesBounds(firstSyncLimit) },
	}
}

func findMode(name string) (mode, error) {
	var known []string
	for _, m := range modes() {
		if m.name == name {
			return m, nil
		}
		known = append(known, m.name)
	}
	return mode{}, fmt.Errorf("mode %q: want one of %s", name, strings.Join(known, ", "))
}

// nftablesSteps are in the order in which one leaves what the next one needs: rules that are in force
// and programs that run, until the last ones.
func (b *bench) nftablesSteps() []step {
	all := []step{
		{"first sync", b.inTurns(b.opts.rounds, b.firstSync)},
		{"restart", b.inTurns(b.opts.rounds, b.restart)},
		{"change", b.besideFloor(b.inTurns(b.opts.changes, b.change))},
		{"new Service", b.besideFloor(b.inTurns(b.opts.changes, b.newService))},
		{"burst", b.besideFloor(b.inTurns(b.opts.changes, b.burst))},
		{"resident memory", b.inTurns(1, b.residentMemory)},
		{"connections", b.connections(400)},
	}
	if b.cluster != nil {
		all = append(all, step{"cold start", b.coldStart})
	}
	return append(all, step{"kernel memory", b.inTurns(1, b.kernelMemory)})
}

func (b *bench) iptablesSteps() []step {
	return []step{
		{"first sync", b.inTurns(b.opts.rounds, b.firstSync)},
		{"change", b.inTurns(b.opts.changes, b.change)},
		{"new Service", b.inTurns(b.opts.changes, b.newService)},
		{"resident memory", b.inTurns(1, b.residentMemory)},
		{"connections", b.connections(40)},
	}
}

// iptablesNames are what kube-proxy calls.
var iptablesNames = []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"}

// linkIPTables gives a directory in which the plain names of the iptables programs are those of a
// variant, whatever they are on this machine. They tell by the name they are called by what to do.
func (p *program) linkIPTables(variant string) (string, error) {
	dir := p.file("bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("links to iptables: %w", err)
	}
	for _, name := range iptablesNames {
		path, err := exec.LookPath(variantName(name, variant))
		if err != nil {
			return "", fmt.Errorf("links to iptables: %w", err)
		}
		if err := os.Symlink(path, dir+"/"+name); err != nil {
			return "", fmt.Errorf("links to iptables: %w", err)
		}
	}
	return dir, nil
}

// variantName puts the variant into the plain name of an iptables program.
func variantName(name, variant string) string {
	first, rest, more := strings.Cut(name, "-")
	if more {
		rest = "-" + rest
	}
	return first + "-" + variant + rest
}

// clearRules removes all rules of the program's host.
func (b *bench) clearRules(p *program) error {
	if err := p.run("nft", "flush", "ruleset"); err != nil {
		return err
	}
	if b.opts.mode.name == ipvsName {
		return p.clearIPVS()
	}
	if b.opts.mode.variant != "legacy" {
		return nil
	}
	if err := p.write("empty", "*nat\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n"); err != nil {
		return err
	}
	for _, name := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
		if err := p.run(name, p.file("empty")); err != nil {
			return err
		}
	}
	return nil
}
