package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// row describes connections from a source to a destination.
type row struct {
	source   string // the name of a host in the lab
	from     netip.Addr
	to       netip.AddrPort
	protocol plan.Protocol
	// unbound reports whether the socket is not bound to an address. If unbound is true, the field from holds the
	// source address that the kernel chooses for the row's destination. If a backend translates the destination in the
	// connect system call, the kernel chooses a source address for the endpoint instead.
	unbound bool
	// mark is the packet mark of the row's packets if the source is the host, or 0 for no mark.
	mark uint32
	// everyEndpoint reports whether the suite must open enough connections to reach every endpoint of the pool.
	everyEndpoint bool
}

// newRow returns a row for a source such as "pod-a", or "host@lb-1" for the host with the source address lb-1. The
// source "host@" stands for an unbound socket of the host. The source address of an unbound socket is the destination
// address if the host has that address, and node-1 otherwise.
func newRow(source string, to netip.AddrPort, protocol plan.Protocol) (row, error) {
	host, from, other := strings.Cut(source, "@")
	unbound := other && from == ""
	if !other || unbound {
		from = host
	}
	addr, err := address(from, plan.FamilyOf(to.Addr()))
	if err != nil {
		return row{}, err
	}
	if host == hostName && (to.Addr().IsLoopback() || unbound && isNodeAddr(to.Addr())) {
		addr = to.Addr()
	}
	return row{source: host, from: addr, to: to, protocol: protocol, unbound: unbound}, nil
}

// packet returns the first packet of one of the row's connections, as the node receives it.
func (r row) packet() plan.Packet {
	p := plan.Packet{Protocol: r.protocol, Src: r.from, Dst: r.to}
	if r.source != hostName {
		p.InInterface = r.source
	}
	return p
}

func (r row) flow(wait time.Duration) netlab.Flow {
	f := netlab.Flow{Protocol: r.protocol, From: r.from, To: r.to, Mark: r.mark, Wait: wait}
	if r.unbound {
		f.From = netip.Addr{}
	}
	return f
}

func (r row) String() string {
	if r.unbound {
		return fmt.Sprintf("from %s (unbound socket) to %s over %s, %s", r.source, r.to, r.protocol,
			plan.FamilyOf(r.to.Addr()))
	}
	return fmt.Sprintf("from %s (%s) to %s over %s, %s", r.source, r.from, r.to, r.protocol, plan.FamilyOf(r.to.Addr()))
}

func isNodeAddr(a netip.Addr) bool {
	return slices.ContainsFunc([]string{"node-1", "node-2", "node-3"},
		func(name string) bool { return mustAddress(name, plan.FamilyOf(a)) == a })
}

// everySource holds a source of each kind that a backend distinguishes: a pod that is an endpoint, another pod, the
// host, and an external client.
var everySource = []string{"pod-a", "pod-c", hostName, "client-a"}

// rowsOf returns the rows from every source, and from an unbound socket of the host, to the given Services. The
// destinations are every frontend, an unused port of every ClusterIP, and an address without a Service. For NodePorts,
// the destinations are the addresses that serve NodePorts, one other address of the node, and loopback.
func rowsOf(p *plan.Plan, services []*plan.ServicePort) []row {
	var rows []row
	add := func(sources []string, to netip.AddrPort, protocol plan.Protocol) {
		for _, source := range sources {
			r, err := newRow(source, to, protocol)
			if err != nil {
				panic(err) // a wrong name is a mistake in the suite
			}
			rows = append(rows, r)
		}
	}
	addUnbound := func(to netip.Addr, port uint16, protocol plan.Protocol) {
		if protocol != plan.SCTP { // for SCTP, the lab uses raw sockets, which do not connect
			add([]string{hostName + "@"}, netip.AddrPortFrom(to, port), protocol)
		}
	}
	for _, svc := range services {
		for _, f := range svc.Frontends {
			if f.Kind == plan.ClusterIP || f.Kind == plan.ExternalIP {
				addUnbound(f.Addr, f.Port, svc.Name.Protocol)
			}
			if f.Kind != plan.NodePort {
				add(everySource, netip.AddrPortFrom(f.Addr, f.Port), svc.Name.Protocol)
			} else {
				for _, name := range []string{"node-1", "node-2", "node-3"} {
					add(everySource, netip.AddrPortFrom(mustAddress(name, svc.Family), f.Port), svc.Name.Protocol)
				}
				addUnbound(mustAddress("node-2", svc.Family), f.Port, svc.Name.Protocol)
				add([]string{hostName}, netip.AddrPortFrom(mustAddress("loopback", svc.Family), f.Port),
					svc.Name.Protocol)
			}
			if f.Kind == plan.ClusterIP {
				add(everySource, netip.AddrPortFrom(f.Addr, f.Port+7), svc.Name.Protocol)
			}
		}
		add(everySource, netip.AddrPortFrom(mustAddress("cluster-250", svc.Family), 80), svc.Name.Protocol)
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(rows)
}
