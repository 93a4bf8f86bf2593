package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/proxiers/plan"
)

// row is one cell of the matrix: connections of one source to one destination.
type row struct {
	source   string // a host of the lab
	from     netip.Addr
	to       netip.AddrPort
	protocol plan.Protocol
	// all asks for so many connections that every endpoint of the pool is reached.
	all bool
}

// newRow makes a row from names: source is "pod-a" or, with another source address, "host@lb-1".
func newRow(source string, to netip.AddrPort, protocol plan.Protocol) (row, error) {
	host, from, other := strings.Cut(source, "@")
	if !other {
		from = host
	}
	addr, err := address(from, plan.FamilyOf(to.Addr()))
	if err != nil {
		return row{}, err
	}
	if host == hostName && to.Addr().IsLoopback() {
		addr = to.Addr()
	}
	return row{source: host, from: addr, to: to, protocol: protocol}, nil
}

// packet is the first packet of the row's connections, as the node sees it.
func (r row) packet() plan.Packet {
	p := plan.Packet{Protocol: r.protocol, Src: r.from, Dst: r.to}
	if r.source != hostName {
		p.InInterface = r.source
	}
	return p
}

func (r row) String() string {
	return fmt.Sprintf("from %s (%s) to %s over %s, %s", r.source, r.from, r.to, r.protocol, plan.FamilyOf(r.to.Addr()))
}

// everySource are the sources that differ to a backend: a pod that is an endpoint, one that is none, the
// host, and a client outside.
var everySource = []string{"pod-a", "pod-c", hostName, "client-a"}

// rowsOf gives a row of every source to every frontend of the services, to NodePorts at addresses that
// accept them, at one that does not and on loopback, to an unused port of every ClusterIP, and to an
// address that no Service has.
func rowsOf(p *plan.Plan, services []*plan.ServicePort) []row {
	var rows []row
	add := func(sources []string, to netip.AddrPort, protocol plan.Protocol) {
		for _, source := range sources {
			r, err := newRow(source, to, protocol)
			if err != nil {
				panic(err) // the names above are the suite's own
			}
			rows = append(rows, r)
		}
	}
	for _, svc := range services {
		for _, f := range svc.Frontends {
			if f.Kind != plan.NodePort {
				add(everySource, netip.AddrPortFrom(f.Addr, f.Port), svc.Name.Protocol)
			} else {
				for _, name := range []string{"node-1", "node-2", "node-3"} {
					add(everySource, netip.AddrPortFrom(mustAddress(name, svc.Family), f.Port), svc.Name.Protocol)
				}
				add([]string{hostName}, netip.AddrPortFrom(mustAddress("loopback", svc.Family), f.Port), svc.Name.Protocol)
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
