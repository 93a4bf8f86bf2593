package conformance

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/plan"
)

// plantedSpec is a plan that exposes every planted bug.
const plantedSpec = `
nodeports node-1 node-2 loopback
service guarded
  cluster pod-a pod-b far-a
  local   pod-a pod-b
  ClusterIP      cluster-3:80   pod=cluster host=cluster+snat outside=cluster+snat
  LoadBalancerIP lb-3:80 from client-a  pod=cluster host=cluster+snat outside=local
  NodePort       30090          pod=cluster host=cluster+snat outside=local
service empty
  ClusterIP      cluster-4:80   all=reject
service elsewhere
  cluster far-a
  ExternalIP     external-4:80  pod=cluster host=cluster+snat outside=drop
` + stickySpec

// bug is a mistake that a backend could make. To simulate a bug, the test applies a slightly wrong plan to a correct
// backend.
type bug struct {
	name  string
	plant func(*plan.Plan)
}

var silentBug = bug{"refusals are silent", eachRoute(func(r *plan.Route) {
	if r.Verdict == plan.Reject {
		r.Verdict = plan.Drop
	}
})}

var forgetfulBug = bug{"the backend ignores session affinity", func(p *plan.Plan) {
	for _, svc := range p.Services {
		svc.Affinity = 0
	}
}}

var bugs = []bug{
	{"the masquerade is forgotten", eachRoute(func(r *plan.Route) { r.SNAT = false })},
	{"everything is masqueraded", eachRoute(func(r *plan.Route) { r.SNAT = true })},
	silentBug,
	{"drops are refused", eachRoute(func(r *plan.Route) {
		if r.Verdict == plan.Drop {
			r.Verdict = plan.Reject
		}
	})},
	{"the backend ignores the traffic policy Local", eachRoute(func(r *plan.Route) { r.Pool = plan.ClusterPool })},
	{"the backend never uses the last endpoint", eachPool(func(es []plan.Endpoint) []plan.Endpoint { return es[:max(1, len(es)-1)] })},
	{"hairpins are not masqueraded", eachPool(func(es []plan.Endpoint) []plan.Endpoint {
		for i := range es {
			es[i].Local = false
		}
		return es
	})},
	{"source ranges are ignored", eachFrontend(func(f *plan.Frontend) { f.AllowFrom = nil })},
	{"pods count as external clients", func(p *plan.Plan) { p.Node.PodSources = nil }},
	{"NodePorts are accepted everywhere", func(p *plan.Plan) {
		p.Node.NodePortAddrs = append(p.Node.NodePortAddrs, mustAddress("node-3", plan.IPv4),
			mustAddress("node-3", plan.IPv6))
		slices.SortFunc(p.Node.NodePortAddrs, netip.Addr.Compare)
	}},
	{"the backend serves no NodePorts on loopback", func(p *plan.Plan) { p.Node.LoopbackAddrs = nil }},
	{"packets to unallocated addresses pass", func(p *plan.Plan) { p.Node.ServiceCIDRs = nil }},
	forgetfulBug,
	{"SCTP is left out", func(p *plan.Plan) {
		p.Services = slices.DeleteFunc(p.Services,
			func(s *plan.ServicePort) bool { return s.Name.Protocol == plan.SCTP })
	}},
}

// silentRefusal is a deviation that only testPlantedBugs declares. With silentRefusal, the backend drops packets
// instead of rejecting them.
var silentRefusal = Deviation{
	Name:   "refusals are silent",
	Reason: "to prove that the suite expects declared deviations",
	Decide: func(_ *plan.Plan, pkt plan.Packet, should plan.Decision) (plan.Decision, bool) {
		does := should
		does.Verdict = plan.Drop
		return does, should.Verdict == plan.Reject && should.Service != nil && !pkt.Dst.Addr().IsLoopback()
	},
}

// affinityLoss is a deviation that only testPlantedBugs declares. With affinityLoss, the backend forgets its clients'
// endpoints.
var affinityLoss = AffinityDeviation{
	Name:              "clients are forgotten",
	Reason:            "to prove that the suite expects declared deviations",
	MayChangeEndpoint: func(*plan.ServicePort, *plan.Frontend, *plan.Frontend) bool { return true },
}

// testPlantedBugs proves that the suite detects a backend's mistakes. Each bug must, on its own, cause a difference.
func testPlantedBugs(t *testing.T, s *suite) {
	sp, err := parseSpec(plantedSpec)
	if err != nil {
		t.Fatal(err)
	}
	right, err := sp.compile(s.world.lab(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// watcher has its own report, because the backend's report must not contain the differences that planted bugs
	// cause.
	watcher := &suite{
		backend: s.backend, world: s.world, sockets: s.sockets, report: newReport(), maxDifferences: 1,
		responseTimeout: 3 * time.Second,
	}
	holder := *watcher
	holder.backend.Deviations = append(slices.Clone(s.backend.Deviations), silentRefusal)

	t.Run("none", func(t *testing.T) { watcher.mustFindNoDifference(t, right, right) })
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) { watcher.mustFindDifference(t, b.spoil(right), right) })
	}
	t.Run("partial syncs write everything", func(t *testing.T) { testPlantedRewrites(t, watcher) })
	t.Run("the suite accepts a declared deviation",
		func(t *testing.T) { holder.mustFindNoDifference(t, silentBug.spoil(right), right) })
	t.Run("the suite reports a declared deviation that does not exist",
		func(t *testing.T) { holder.mustFindDifference(t, right, right) })
	forgetful := *watcher
	forgetful.report = newReport()
	forgetful.backend.AffinityDeviations = append(slices.Clone(s.backend.AffinityDeviations), affinityLoss)
	t.Run("the suite reports a declared affinity deviation that does not exist", func(t *testing.T) {
		forgetful.mustFindNoDifference(t, right, right)
		if unseen := forgetful.unseenDeviations(); !slices.ContainsFunc(unseen,
			func(line string) bool { return strings.Contains(line, affinityLoss.Name) }) {
			t.Errorf("the suite reported only %q instead of the declared deviation", unseen)
		}
	})
	t.Run("the suite accepts a declared affinity deviation", func(t *testing.T) {
		forgetful.mustFindNoDifference(t, forgetfulBug.spoil(right), right)
		if forgetful.report.deviated[affinityLoss.Name] == 0 {
			t.Error("no client was forgotten")
		}
	})
}

// mustFindNoDifference applies the first plan, and fails the test if connections do not behave as the second plan
// requires.
func (s *suite) mustFindNoDifference(t *testing.T, applied, specified *plan.Plan) {
	t.Helper()
	s.startClean(t).apply(t, nil, applied)
	fail(t, s.sampleDifferences(specified))
}

func (s *suite) mustFindDifference(t *testing.T, applied, specified *plan.Plan) {
	t.Helper()
	s.startClean(t).apply(t, nil, applied)
	found := s.sampleDifferences(specified)
	if len(found) == 0 {
		t.Fatal("the suite did not notice")
	}
	t.Logf("%d differences, as %s", len(found), found[0])
}

func (b bug) spoil(right *plan.Plan) *plan.Plan {
	wrong := copyPlan(right)
	b.plant(wrong)
	for _, svc := range wrong.Services {
		svc.Seal()
	}
	return wrong
}

// sampleDifferences compares a sample of rows with the plan p and returns the first differences.
func (s *suite) sampleDifferences(p *plan.Plan) []string {
	var some []*plan.ServicePort
	for _, svc := range p.Services {
		if (svc.Name.Protocol == plan.UDP) == (svc.Family == plan.IPv6) {
			some = append(some, svc)
		}
	}
	rows := rowsOf(p, some)
	for i, r := range rows {
		d := p.Decide(r.packet())
		rows[i].everyEndpoint = d.Service != nil && d.Service.Affinity == 0
	}
	if found := s.compare(p, rows); len(found) > 0 {
		return found
	}
	return s.sticky(p)
}

func eachRoute(change func(*plan.Route)) func(*plan.Plan) {
	return eachFrontend(func(f *plan.Frontend) {
		for o := range f.Routes {
			change(&f.Routes[o])
		}
	})
}

func eachFrontend(change func(*plan.Frontend)) func(*plan.Plan) {
	return func(p *plan.Plan) {
		for _, svc := range p.Services {
			for i := range svc.Frontends {
				change(&svc.Frontends[i])
			}
		}
	}
}

func eachPool(change func([]plan.Endpoint) []plan.Endpoint) func(*plan.Plan) {
	return func(p *plan.Plan) {
		for _, svc := range p.Services {
			for i, pool := range svc.Pools {
				if len(pool) > 0 {
					svc.Pools[i] = change(pool)
				}
			}
		}
	}
}

// copyPlan returns a copy of p that the bugs can change.
func copyPlan(p *plan.Plan) *plan.Plan {
	node := *p.Node
	node.NodePortAddrs = slices.Clone(node.NodePortAddrs)
	c := &plan.Plan{Generation: p.Generation, Node: &node}
	for _, svc := range p.Services {
		sp := *svc
		sp.Frontends = slices.Clone(sp.Frontends)
		for i := range sp.Pools {
			sp.Pools[i] = slices.Clone(sp.Pools[i])
		}
		c.Services = append(c.Services, &sp)
	}
	return c
}
