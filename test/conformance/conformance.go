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
	// Dump returns a textual dump of the backend's state in this network namespace. The dump must depend only on the
	// applied plan, and not on the order of changes. The dump must not contain handles, counters or client affinity.
	Dump func(ctx context.Context) (string, error)
	// Sequences is the number of random sequences of partial syncs that the suite compares with full syncs, or 0 for
	// the default number.
	Sequences int
	// Patterns lists regular expressions. Each regular expression must match at least one, but not all, of the dumps of
	// the backend's state with random Services.
	Patterns []*regexp.Regexp
	// Deviations lists the declared differences between plan.Decide and the backend's decisions. The suite expects
	// exactly the declared differences.
	Deviations []Deviation
	// AffinityDeviations lists the declared deviations in session affinity. Deviations in session affinity have their
	// own type, because the suite needs several connections to observe such a deviation.
	AffinityDeviations []AffinityDeviation
	// Followers lists the components that run after the backend, as in the daemon.
	Followers []proxiers.Component
	// CountsLoopback reports whether the backend exports kube-proxy's metric for rejected packets on loopback.
	CountsLoopback bool
	// VMOnlyReason is the reason why the suite tests the backend only in virtual machines, or "" if the suite can test
	// it anywhere.
	VMOnlyReason string
	// Shortcut is a path that bypasses the backend's rules, or nil if the backend has no such path.
	Shortcut *Shortcut
	// Damages maps names to functions that damage the backend's state, as another program might. After each kind of
	// damage, the backend must report drift, and a full sync must repair the state.
	Damages map[string]func(ctx context.Context) error
}

// Deviation is a declared difference from the decisions of plan.Decide.
type Deviation struct {
	Name string
	// Reason explains why the backend cannot implement the specification.
	Reason string
	// Decide returns the decision that the backend actually makes. ok is false if the backend decides as
	// specified. The suite fails if ok is true but a connection behaves as specified.
	Decide func(p *plan.Plan, pkt plan.Packet, should plan.Decision) (does plan.Decision, ok bool)
}

// Shortcut is a packet path that bypasses the backend's rules but leads to the same result. The suite requires eligible
// connections to take the shortcut.
type Shortcut struct {
	// IsEligible reports whether a connection with decision d can take the shortcut. The unbound argument reports
	// whether the connection's socket is not bound to an address.
	IsEligible func(p *plan.Plan, pkt plan.Packet, d plan.Decision, unbound bool) bool
	// Count returns the number of connections that have taken the shortcut.
	Count func() (int, error)
}

// minShortcutPercent is the minimum percentage of eligible connections that must take the shortcut.
const minShortcutPercent = 95

// AffinityDeviation is a declared difference from the specified session affinity.
type AffinityDeviation struct {
	Name string
	// Reason explains why the backend cannot implement the specification.
	Reason string
	// MayChangeEndpoint reports whether a client's second connection may reach a different endpoint than the first.
	// before and now are the frontends of the client's two connections, and may be the same frontend. The suite fails
	// if no client reaches a different endpoint.
	MayChangeEndpoint func(svc *plan.ServicePort, before, now *plan.Frontend) bool
}

// machineDir is a directory that exists only in the virtual machines of test/vm.
const machineDir = "/vm/job"

// Run tests a backend against the specification in a separate process. TestMain must call Main before Run. Run requires
// root.
func Run(t *testing.T, b Backend) {
	if b.VMOnlyReason != "" && !inMachine() {
		t.Skipf("%s: %s", b.Name, b.VMOnlyReason)
	}
	if isolate(t) {
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
	defer func() { t.Log("\n" + s.report.summary(b.Name)) }()

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
		{"connections", testConnections},
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
		// In all tests except "scenarios", "matrix" and "state", Shortcut.Count includes connections that the suite
		// does not compare.
		s.countsShortcut = slices.Contains([]string{"scenarios", "matrix", "state"}, part.name)
		t.Run(part.name, func(t *testing.T) {
			looked = looked || s.countsShortcut
			part.test(t, s)
		})
	}
	if !t.Failed() {
		fail(t, s.unseenDeviations())
		if looked {
			fail(t, s.shortcutUnused())
		}
	}
}

func (s *suite) shortcutUnused() []string {
	if s.backend.Shortcut == nil ||
		s.report.eligibleCount > 0 && s.report.shortcutCount*100 >= s.report.eligibleCount*minShortcutPercent {
		return nil
	}
	return []string{fmt.Sprintf(
		"only %d of %d eligible connections used the shortcut", s.report.shortcutCount, s.report.eligibleCount)}
}

func inMachine() bool {
	_, err := os.Stat(machineDir)
	return err == nil
}

// unseenDeviations returns a line for each declared deviation that the suite did not observe.
func (s *suite) unseenDeviations() (problems []string) {
	declared := map[string]string{}
	for _, d := range s.backend.Deviations {
		declared[d.Name] = d.Reason
	}
	for _, d := range s.backend.AffinityDeviations {
		declared[d.Name] = d.Reason
	}
	for _, name := range sortedKeys(declared) {
		if s.report.deviated[name] == 0 {
			problems = append(problems, fmt.Sprintf("no connection showed the declared deviation %q (%s)", name,
				declared[name]))
		}
	}
	return problems
}
