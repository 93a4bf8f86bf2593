package conformance

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// Backend is a backend under test.
type Backend struct {
	proxiers.Component
	// Dump gives what the backend keeps in the kernel of this network namespace, in a form that is a
	// function of the applied plan alone: no handles, no counters, no client's session affinity, and
	// nothing that only the order of changes decides.
	Dump func(ctx context.Context) (string, error)
	// Sequences is how many sequences of partial syncs are compared with full ones, if not as many as usual.
	Sequences int
	// Shapes are what the dump must match now and then while random Services come and go.
	Shapes []*regexp.Regexp
	// Deviations are what the backend cannot express. The suite holds it to them.
	Deviations []Deviation
	// Affinity are its differences in session affinity, which is about several connections.
	Affinity []AffinityDeviation
	// Followers run after the backend wherever the suite runs it, as they would in the daemon.
	Followers []proxiers.Component
	// CountsLoopback says that it counts what it rejects on loopback addresses, in a metric of kube-proxy's.
	CountsLoopback bool
	// NotHere says why the backend can run in the virtual machines alone; "" when it can run anywhere.
	NotHere string
	// Shortcut is a way past the rules; nil: the backend has none.
	Shortcut *Shortcut
	// Damages are ways in which something else breaks the backend's state, by name. After each the
	// backend must report drift, and a full sync must mend it.
	Damages map[string]func(ctx context.Context) error
}

// Deviation is a declared difference from plan.Decide.
type Deviation struct {
	Name string
	// Reason says why the backend cannot do better.
	Reason string
	// Instead gives what the backend does with the packet instead of what it should; ok is false when
	// it does as it should. The suite fails when the backend does as it should although ok is true.
	Instead func(p *plan.Plan, pkt plan.Packet, should plan.Decision) (does plan.Decision, ok bool)
}

// Shortcut is a way that connections can take without meeting the backend's complete rules, which would do as well. The
// suite sees to it that it is taken.
type Shortcut struct {
	// Eligible says that a connection which the plan decides so can take it. unbound: of a socket without an address of
	// its own.
	Eligible func(p *plan.Plan, pkt plan.Packet, d plan.Decision, unbound bool) bool
	// Taken counts connections that have taken it.
	Taken func() (int, error)
}

// leastTaken is how many of a hundred eligible connections must take the shortcut.
const leastTaken = 95

// AffinityDeviation is a declared difference in session affinity.
type AffinityDeviation struct {
	Name string
	// Reason says why the backend cannot do better.
	Reason string
	// Forgets says that a client of the ServicePort, which came by one frontend before and comes by another one or the
	// same now, may be sent to another endpoint. The suite fails when none ever is.
	Forgets func(svc *plan.ServicePort, before, now *plan.Frontend) bool
}

// machineDir is there in the virtual machines of test/vm alone.
const machineDir = "/vm/job"

// Run holds a backend against the specification, in a process of its own. TestMain must have called Main;
// root is needed.
func Run(t *testing.T, b Backend) {
	if b.NotHere != "" && !inMachine() {
		t.Skipf("%s: %s", b.Name, b.NotHere)
	}
	if alone(t) {
		return
	}
	for _, c := range b.all() {
		if c.Probe == nil {
			continue
		}
		if err := c.Probe(t.Context()); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
	}
	s := &suite{backend: b, world: newWorld(t), sockets: newSockets(t), report: newReport()}
	// Whatever happens below, the log says how much was compared.
	defer func() { t.Log("\n" + s.report.text(b.Name)) }()

	looked := false
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
		{"own mark", testOwnMark},
		{"state", testState},
		{"partial syncs", testPartialSyncs},
		{"writes", testWrites},
		{"restart", testRestart},
		{"faults", testFaults},
		{"drift", testDrift},
		{"planted bugs", testPlantedBugs},
	} {
		// Elsewhere other connections than those that are compared are made at the same time.
		s.measured = slices.Contains([]string{"scenarios", "matrix", "state"}, part.name)
		t.Run(part.name, func(t *testing.T) {
			looked = looked || s.measured
			part.test(t, s)
		})
	}
	if !t.Failed() {
		fail(t, s.deviationsUnseen())
		if looked { // and not only other parts were asked for
			fail(t, s.shortcutUnused())
		}
	}
}

// shortcutUnused says that the backend leaves to its rules what it has a shortcut for.
func (s *suite) shortcutUnused() []string {
	if s.backend.Shortcut == nil || s.report.eligible > 0 && s.report.taken*100 >= s.report.eligible*leastTaken {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d eligible connections took the shortcut", s.report.taken, s.report.eligible)}
}

func inMachine() bool {
	_, err := os.Stat(machineDir)
	return err == nil
}

// deviationsUnseen gives a line for each declared deviation that no connection met.
func (s *suite) deviationsUnseen() (problems []string) {
	declared := map[string]string{}
	for _, d := range s.backend.Deviations {
		declared[d.Name] = d.Reason
	}
	for _, d := range s.backend.Affinity {
		declared[d.Name] = d.Reason
	}
	for _, name := range sortedKeys(declared) {
		if s.report.deviated[name] == 0 {
			problems = append(problems, fmt.Sprintf("declared deviation %q (%s): no connection met it", name, declared[name]))
		}
	}
	return problems
}
