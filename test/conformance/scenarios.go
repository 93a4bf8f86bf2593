package conformance

import "testing"

func testScenarios(t *testing.T, s *suite) {
	all, err := loadScenarios()
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) { s.runScenario(t, sc) })
	}
}

func (s *suite) runScenario(t *testing.T, sc scenario) {
	ses := s.startClean(t)
	for _, st := range sc.steps {
		var rows []row
		var flows []flow // flows[i] is the flow of rows[i]
		for _, f := range st.flows {
			rs, err := f.rows()
			if err != nil {
				t.Fatalf("flow %q: %v", f.line, err)
			}
			for range rs {
				flows = append(flows, f)
			}
			rows = append(rows, rs...)
		}
		s.addHostSources(t, rows)
		p := ses.sync(t, st.spec)
		for i, r := range rows {
			if problem := flows[i].difference(s.world, p, r); problem != "" {
				t.Errorf("flow %q, %s: %s", flows[i].line, r, problem)
			}
			if d := p.Decide(r.packet()); d.Service != nil && d.Service.Affinity > 0 {
				rows[i].everyEndpoint = false // with session affinity, all connections reach the same endpoint
			}
		}
		s.mustAgree(t, p, rows, "step ", p.Generation)
	}
}

// addHostSources gives the host each source address that a row from the host needs, and removes the added addresses
// when the test ends.
func (s *suite) addHostSources(t *testing.T, rows []row) {
	for _, r := range rows {
		if r.source != hostName || r.from.IsLoopback() || s.world.Node.Has(r.from) {
			continue
		}
		s.world.AddNodeAddr("lo", r.from)
		t.Cleanup(func() { s.world.RemoveNodeAddr("lo", r.from) })
	}
}
