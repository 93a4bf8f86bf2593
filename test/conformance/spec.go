package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// spec is a plan in scenario notation. Each Service in a spec stands for up to six ServicePorts.
type spec struct {
	pods      podsBy
	nodePorts []string // names of addresses
	cidrs     []netip.Prefix
	services  []*service
	// moreHostAddrs holds the names of node addresses that are in the plan but not in the lab.
	moreHostAddrs []string
	checks        []*plan.HealthCheck
}

type podsBy uint8

const (
	podsBySource podsBy = iota
	podsByInterface
	podsUnknown
)

type service struct {
	name      string // NAME or NAME:PORT
	number    int    // the number of a random Service
	protocols []plan.Protocol
	families  []plan.Family
	affinity  time.Duration
	pools     [2][]string // names of endpoints
	leaving   []string    // terminating endpoints, which serve only established connections
	frontends []frontend
}

type frontend struct {
	kind   plan.FrontendKind
	addr   string // the name of an address, or "" for NodePort
	port   uint16
	from   []string // names and prefixes of sources, or nil for all sources
	routes [3]plan.Route
}

// labAddrs holds the lab addresses that a plan contains: the addresses of the node and of the endpoints.
type labAddrs struct {
	hostAddrs []netip.Addr
	// endpoints maps the name that an endpoint's server sends (such as "pod-a" or "far-a:9090") and a family to the
	// address of the endpoint.
	endpoints map[string]map[plan.Family]netip.AddrPort
}

// compile validates the spec and returns its plan. As in the planner, the new plan shares unchanged objects with the
// previous plan, prev.
func (s *spec) compile(l *labAddrs, prev *plan.Plan) (*plan.Plan, error) {
	services, err := s.compileServices(l, prev)
	if err != nil {
		return nil, err
	}
	p := &plan.Plan{Generation: 1, Node: s.node(l), Services: services, HealthChecks: s.checks}
	if prev != nil {
		p.Generation = prev.Generation + 1
		if sameNode(prev.Node, p.Node) {
			p.Node = prev.Node
		}
	}
	return p, plantest.Validate(p)
}

func (s *spec) compileServices(l *labAddrs, prev *plan.Plan) (all []*plan.ServicePort, err error) {
	for _, svc := range s.services {
		for _, proto := range svc.protocols {
			for _, family := range svc.families {
				sp, err := svc.compile(l, proto, family)
				if err != nil {
					return nil, fmt.Errorf("service %s: %w", svc.name, err)
				}
				if old := prev.Find(sp.Name, family); old != nil && old.Digest == sp.Digest {
					sp = old
				}
				all = append(all, sp)
			}
		}
	}
	slices.SortFunc(all, (*plan.ServicePort).Compare)
	for i := 1; i < len(all); i++ {
		if all[i-1].Compare(all[i]) == 0 {
			return nil, fmt.Errorf("two services have the name %s", all[i].Name)
		}
	}
	return all, nil
}

func (s *spec) node(l *labAddrs) *plan.Node {
	n := &plan.Node{Name: "node", ServiceCIDRs: plan.NormalizePrefixes(s.cidrs)}
	n.HostAddrs = append(n.HostAddrs, l.hostAddrs...)
	for _, f := range families {
		n.HostAddrs = append(n.HostAddrs, mustAddress("loopback", f))
		for _, name := range s.moreHostAddrs {
			n.HostAddrs = append(n.HostAddrs, mustAddress(name, f))
		}
		for _, name := range s.nodePorts {
			if name == "loopback" {
				n.LoopbackAddrs = append(n.LoopbackAddrs, mustAddress(name, f))
			} else {
				n.NodePortAddrs = append(n.NodePortAddrs, mustAddress(name, f))
			}
		}
	}
	switch s.pods {
	case podsBySource:
		n.PodSources = plan.NormalizePrefixes(podRanges)
	case podsByInterface:
		n.PodInterfaces = []string{"pod-*"}
	case podsUnknown:
	}
	slices.SortFunc(n.HostAddrs, netip.Addr.Compare)
	slices.SortFunc(n.NodePortAddrs, netip.Addr.Compare)
	return n
}

func sameNode(a, b *plan.Node) bool {
	return slices.Equal(a.HostAddrs, b.HostAddrs) && slices.Equal(a.NodePortAddrs, b.NodePortAddrs) &&
		slices.Equal(a.LoopbackAddrs, b.LoopbackAddrs) && slices.Equal(a.PodSources, b.PodSources) &&
		slices.Equal(a.PodInterfaces, b.PodInterfaces) &&
		slices.Equal(a.ServiceCIDRs, b.ServiceCIDRs)
}

func (s *service) compile(l *labAddrs, proto plan.Protocol, family plan.Family) (*plan.ServicePort, error) {
	name, port, _ := strings.Cut(s.name, ":")
	sp := &plan.ServicePort{
		Name:   plan.ServicePortName{Namespace: "default", Name: name, Port: port, Protocol: proto},
		Family: family, Affinity: s.affinity,
	}
	var used [2]bool
	for _, f := range s.frontends {
		pf, err := f.compile(family)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.kind, err)
		}
		sp.Frontends = append(sp.Frontends, pf)
		for _, r := range f.routes {
			used[r.Pool] = used[r.Pool] || r.Verdict == plan.Forward
		}
	}
	slices.SortFunc(sp.Frontends, func(a, b plan.Frontend) int { return a.Compare(&b) })
	for pool, names := range s.pools {
		for _, name := range names {
			at, known := l.endpoints[name][family]
			if !known {
				return nil, fmt.Errorf("no endpoint is called %q", name)
			}
			host, _, _ := strings.Cut(name, ":")
			e := plan.Endpoint{Addr: at, Local: isLocal(host)}
			sp.Serving = append(sp.Serving, e)
			if used[pool] {
				sp.Pools[pool] = append(sp.Pools[pool], e)
			}
		}
		slices.SortFunc(sp.Pools[pool], func(a, b plan.Endpoint) int { return a.Addr.Compare(b.Addr) })
		if used[pool] && len(names) == 0 {
			return nil, fmt.Errorf("a route forwards to the %s pool, which is empty", plan.Pool(pool))
		}
	}
	for _, name := range s.leaving {
		host, _, _ := strings.Cut(name, ":")
		sp.Serving = append(sp.Serving, plan.Endpoint{Addr: l.endpoints[name][family], Local: isLocal(host)})
	}
	slices.SortFunc(sp.Serving, func(a, b plan.Endpoint) int { return a.Addr.Compare(b.Addr) })
	sp.Serving = slices.Compact(sp.Serving)
	sp.Seal()
	return sp, nil
}

func (f *frontend) compile(family plan.Family) (plan.Frontend, error) {
	pf := plan.Frontend{Kind: f.kind, Port: f.port, Routes: f.routes}
	if f.kind != plan.NodePort {
		addr, err := address(f.addr, family)
		if err != nil {
			return pf, err
		}
		pf.Addr = addr
	}
	if f.from == nil {
		return pf, nil
	}
	pf.AllowFrom = []netip.Prefix{}
	for _, text := range f.from {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			if plan.FamilyOf(prefix.Addr()) == family {
				pf.AllowFrom = append(pf.AllowFrom, prefix)
			}
			continue
		}
		addr, err := address(text, family)
		if err != nil {
			return pf, err
		}
		pf.AllowFrom = append(pf.AllowFrom, netip.PrefixFrom(addr, addr.BitLen()))
	}
	pf.AllowFrom = plan.NormalizePrefixes(pf.AllowFrom)
	return pf, nil
}
