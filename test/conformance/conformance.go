package conformance

import (
	"context"
	"regexp"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// Backend is a backend under test.
type Backend struct {
	proxiers.Backend
	// Dump gives what the backend keeps in the kernel of this network namespace, in a form that is a
	// function of the applied plan alone: no handles, no counters, no client's session affinity, and
	// nothing that only the order of changes decides.
	Dump func(ctx context.Context) (string, error)
	// Sequences is how many sequences of partial syncs are compared with full ones, if not as many as usual.
	Sequences int
	// Shapes are what the dump must match now and then while random Services come and go.
	Shapes []*regexp.Regexp
	// Deviations are what the backend can not express. The suite holds it to them.
	Deviations []Deviation
	// Damages are ways in which something else breaks the backend's state, by name. After each the
	// backend must report drift, and a full sync must mend it.
	Damages map[string]func(ctx context.Context) error
}

// Deviation is a declared difference from plan.Decide.
type Deviation struct {
	Name string
	// Reason says why the backend can not do better.
	Reason string
	// Instead gives what the backend does with the packet instead of what it should; ok is false when
	// it does as it should. The suite fails when the backend does as it should although ok is true.
	Instead func(p *plan.Plan, pkt plan.Packet, should plan.Decision) (does plan.Decision, ok bool)
}

// Run holds a backend against the specification, in a process of its own. TestMain must have called Main;
// root is needed.
func Run(t *testing.T, b Backend) {
	if alone(t) {
		return
	}
	if err := b.Probe(t.Context()); err != nil {
		t.Fatalf("%s: %v", b.Name, err)
	}
	s := &suite{backend: b, world: newWorld(t), sockets: newSockets(t), report: newReport()}
	// Whatever happens below, the log says how much was compared.
	defer func() { t.Log("\n" + s.report.text(b.Name)) }()

	for _, part := range []struct {
		name string
		test func(*testing.T, *suite)
	}{
		{"scenarios", testScenarios},
		{"matrix", testMatrix},
		{"balance", testBalance},
		{"affinity", testAffinity},
		{"loopback counters", testLoopbackCounters},
		{"marks", testMarks},
		{"state", testState},
		{"partial syncs", testPartialSyncs},
		{"restart", testRestart},
		{"faults", testFaults},
		{"drift", testDrift},
		{"planted bugs", testPlantedBugs},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, s) })
	}
	if !t.Failed() {
		s.checkDeviationsSeen(t)
	}
}

// checkDeviationsSeen fails for a declared deviation that no connection met.
func (s *suite) checkDeviationsSeen(t *testing.T) {
	for _, d := range s.backend.Deviations {
		if s.report.deviated[d.Name] == 0 {
			t.Errorf("declared deviation %q (%s): no connection met it", d.Name, d.Reason)
		}
	}
}
