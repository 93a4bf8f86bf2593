package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/test/e2e/cluster"
)

const ipvsName = "ipvs"

// ipvsSteps measure what is bound.
func (b *bench) ipvsSteps() []step {
	return []step{
		{"first sync", b.inTurns(b.opts.rounds, b.firstSync)},
		{"virtual servers", b.inTurns(1, b.hasServers)},
		{"change", b.inTurns(b.opts.changes, b.change)},
		{"new Service", b.inTurns(b.opts.changes, b.newService)},
		{"resident memory", b.inTurns(1, b.residentMemory)},
		{"requests", b.requests},
	}
}

// hasServers fails unless the program uses IPVS for every Service: another way, as Edgeway's fallback, would work as well.
func (b *bench) hasServers(_ context.Context, p *program) error {
	n, err := p.servers()
	if err == nil && n < b.size {
		err = fmt.Errorf("%d virtual servers for %d Services", n, b.size)
	}
	return err
}

// servers counts the virtual servers of the program's host. Not by /proc/net/ip_vs, which leaves some out where another network
// namespace has servers, too (Linux 6.1).
func (p *program) servers() (n int, err error) {
	out, err := p.command("ipvsadm", "--save", "--numeric").Output()
	if err != nil {
		return 0, fmt.Errorf("virtual servers of %s: %w", p.name, err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "-A ") {
			n++
		}
	}
	return n, nil
}

// clearIPVS removes all that a backend with IPVS has beside its rules, which are gone already.
func (p *program) clearIPVS() error {
	if err := p.run("ipvsadm", "--clear"); err != nil {
		return err
	}
	if err := cluster.InNetns(p.host.netns, clearAddresses); err != nil {
		return fmt.Errorf("addresses on the host of %s: %w", p.name, err)
	}
	// The kernel ends the rules that use a set in the background.
	err := p.run("ipset", "destroy")
	for try := 0; err != nil && try < 100; try++ {
		time.Sleep(100 * time.Millisecond)
		err = p.run("ipset", "destroy")
	}
	if err != nil {
		return err
	}
	n, err := p.servers()
	if err == nil && n > 0 {
		err = fmt.Errorf("%d virtual servers of %s are left", n, p.name)
	}
	return err
}

// clearAddresses removes what makes addresses of Services local: kube-proxy's device, and routes in a table of their own.
func clearAddresses() error {
	device, err := netlink.LinkByName("kube-ipvs0")
	if err == nil {
		err = netlink.LinkDel(device)
	}
	var none netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &none) {
		return fmt.Errorf("device: %w", err)
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := clearRoutes(family); err != nil {
			return err
		}
	}
	return nil
}

// clearRoutes leaves the tables that every host has.
func clearRoutes(family int) error {
	usual := []int{unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT}
	rules, err := netlink.RuleList(family)
	if err != nil {
		return fmt.Errorf("list of rules: %w", err)
	}
	for i := range rules {
		if slices.Contains(usual, rules[i].Table) {
			continue
		}
		if err := netlink.RuleDel(&rules[i]); err != nil {
			return fmt.Errorf("rule %s: %w", rules[i], err)
		}
	}
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list of routes: %w", err)
	}
	for i := range routes {
		if slices.Contains(usual, routes[i].Table) {
			continue
		}
		if err := netlink.RouteDel(&routes[i]); err != nil {
			return fmt.Errorf("route %s: %w", routes[i], err)
		}
	}
	return nil
}
