package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// mode describes a kernel mechanism that both Edgeway and kube-proxy support.
type mode struct {
	name     string // the value of the -mode option and of Edgeway's proxy.backend key
	peerMode string // kube-proxy's name for this mode
	variant  string // "nft" or "legacy" for iptables, "" otherwise
	// syncPeriod is the time between two periodic syncs of kube-proxy.
	syncPeriod time.Duration
	sizes      string
	// allSteps reports whether the benchmark also measures restarts, bursts, starts without the API server, and package
	// floor.
	allSteps bool
}

const ipvsName = "ipvs"

func modes() []mode {
	const usual = 30 * time.Second
	return []mode{
		{
			name: "nftables", peerMode: "nftables", syncPeriod: usual, sizes: "100,1000,10000,30000", allSteps: true,
		},
		{
			name: "iptables-nft", peerMode: "iptables", variant: "nft", syncPeriod: usual, sizes: "5000",
		},
		{
			name: "iptables-legacy", peerMode: "iptables", variant: "legacy", syncPeriod: usual, sizes: "5000,10000",
		},
		{
			// In ipvs mode, a kube-proxy sync takes so long that a periodic sync would disturb every measurement.
			name: ipvsName, peerMode: "ipvs", syncPeriod: time.Hour, sizes: "100,1000,5000",
		},
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

// step is one kind of measurement, which the benchmark performs for each number of Services.
type step struct {
	name string
	run  func(context.Context) error
}

// steps returns the steps in order. Each step leaves in place the rules and the running programs that the next step
// needs.
func (b *bench) steps() []step {
	start := func(what measure) func(context.Context) error {
		return b.measureInTurns(b.opts.rounds, func(ctx context.Context, p *program) error {
			return b.measureStart(ctx, p, what)
		})
	}
	all := []step{{"first sync", start(firstSync)}}
	if b.opts.mode.name == ipvsName {
		all = append(all, step{"virtual servers", b.measureInTurns(1, b.requireServers)})
	}
	if b.opts.mode.allSteps {
		all = append(all, step{"restart", start(restart)})
	}
	all = append(all,
		step{"change", b.withFloor(b.measureInTurns(b.opts.changes, b.measureChange))},
		step{"new Service", b.withFloor(b.measureInTurns(b.opts.changes, b.measureNewService))})
	if b.opts.mode.allSteps {
		all = append(all, step{"burst", b.withFloor(b.measureInTurns(b.opts.changes, b.measureBurst))})
	}
	all = append(all, step{"memory", b.measureInTurns(1, b.residentMemory)}, step{"connections", b.measureConnections})
	if b.opts.mode.allSteps {
		all = append(all, step{"start without the API server", b.measureColdStarts})
	}
	return all
}

// requireServers returns an error unless the program uses IPVS for every Service. On a host without IPVS, Edgeway would
// silently use its fallback for the Services.
func (b *bench) requireServers(_ context.Context, p *program) error {
	// On Linux 6.1, /proc/net/ip_vs omits some virtual servers if another network namespace also has virtual servers.
	out, err := p.command("ipvsadm", "--save", "--numeric").Output()
	if err != nil {
		return fmt.Errorf("virtual servers of %s: %w", p.name, err)
	}
	if n := strings.Count("\n"+string(out), "\n-A "); n < b.size {
		return fmt.Errorf("IPVS has only %d virtual servers for %d Services", n, b.size)
	}
	return nil
}
