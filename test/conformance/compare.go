package conformance

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

const (
	// responseTimeout is the time limit for an expected response. Only a connection that fails takes this long.
	responseTimeout = 30 * time.Second
	// dropTimeout is the time after which an unanswered packet counts as dropped.
	dropTimeout = 400 * time.Millisecond
	// maxBusyRows is the maximum number of concurrent row tests that use the CPU, and maxIdleRows is the maximum number
	// of concurrent row tests that mostly wait, for example for the rejection of a TCP connection. If the ICMP error
	// arrives while connect(2) still holds the socket lock, Linux reports the error only after the next SYN, a second
	// later.
	maxBusyRows = 16
	maxIdleRows = 400
)

type suite struct {
	backend Backend
	world   *suiteLab
	sockets *sockets
	report  *report
	// responseTimeout, if not 0, overrides the constant of the same name.
	responseTimeout time.Duration
	// countsShortcut reports whether the suite counts the connections that take the backend's shortcut.
	countsShortcut bool
	// maxDifferences is the number of differences after which compare stops, or 0 for no limit.
	maxDifferences int
}

// compare tests the connections of all rows and returns a line for each row whose result differs from the result that
// the plan p requires.
func (s *suite) compare(p *plan.Plan, rows []row) (differences []string) {
	defer s.world.stopLoopbackServers()
	if err := s.listenOnHost(p, rows); err != nil {
		return []string{err.Error()}
	}
	taken, err := s.shortcutConnections()
	if err != nil {
		return []string{err.Error()}
	}
	slots := map[bool]chan struct{}{true: make(chan struct{}, maxBusyRows), false: make(chan struct{}, maxIdleRows)}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, r := range rows {
		e := s.expect(p, r)
		slot := slots[e.Verdict == plan.Forward || e.Verdict == plan.Pass]
		wg.Go(func() {
			slot <- struct{}{}
			defer func() { <-slot }()
			mu.Lock()
			done := s.maxDifferences > 0 && len(differences) >= s.maxDifferences
			mu.Unlock()
			if done {
				return
			}
			if difference := s.compareRow(p, r, e); difference != "" {
				mu.Lock()
				defer mu.Unlock()
				differences = append(differences, difference)
			}
		})
	}
	wg.Wait()
	now, err := s.shortcutConnections()
	if err != nil {
		return []string{err.Error()}
	}
	s.report.countTaken(now - taken)
	s.report.countDifferences(len(differences))
	slices.Sort(differences)
	return differences
}

// shortcutConnections returns the number of connections that have taken the shortcut, or 0 if the suite does not count
// them.
func (s *suite) shortcutConnections() (int, error) {
	if s.backend.Shortcut == nil || !s.countsShortcut {
		return 0, nil
	}
	return s.backend.Shortcut.Count()
}

// countEligible counts a row's n connections as eligible if they can take the shortcut.
func (s *suite) countEligible(p *plan.Plan, r row, e expectation, n int) {
	if c := s.backend.Shortcut; c != nil && s.countsShortcut && c.IsEligible(p, r.packet(), e.should, r.unbound) {
		s.report.countEligible(n)
	}
}

// expectation is a row's required result, according to Decide or a declared deviation.
type expectation struct {
	plan.Decision
	should    plan.Decision
	deviation *Deviation
	// toHost reports whether the destination of the row is one of the host's addresses.
	toHost bool
}

func (s *suite) expect(p *plan.Plan, r row) expectation {
	should := p.Decide(r.packet())
	e := expectation{Decision: should, should: should, toHost: slices.Contains(p.Node.HostAddrs, r.to.Addr())}
	for i, d := range s.backend.Deviations {
		if does, ok := d.Decide(p, r.packet(), should); ok {
			e.Decision, e.deviation = does, &s.backend.Deviations[i]
			break
		}
	}
	return e
}

// listenOnHost starts a server at the destination of each row whose connections must reach the host itself instead of a
// Service.
func (s *suite) listenOnHost(p *plan.Plan, rows []row) error {
	for _, r := range rows {
		if e := s.expect(p, r); e.Verdict == plan.Pass && e.toHost {
			if err := s.world.listen(r.to, r.protocol); err != nil {
				return fmt.Errorf("server on the host at %s/%s: %w", r.to, r.protocol, err)
			}
		}
	}
	return nil
}

// compareRow opens as many connections as the row's expected result requires: one, two, or enough to reach every
// endpoint.
func (s *suite) compareRow(p *plan.Plan, r row, e expectation) string {
	wait, least, most := cmp.Or(s.responseTimeout, responseTimeout), 2, 2
	switch {
	case s.answer(r, e) == netlab.Silent:
		wait, least, most = paced(dropTimeout), 1, 1
	case e.Verdict != plan.Forward:
		least, most = 1, 1
	case r.everyEndpoint:
		// With n endpoints, 60n connections miss a given endpoint with a probability of about e^-60.
		least, most = len(e.Endpoints), 60*len(e.Endpoints)
	}
	met := map[string]bool{}
	n := 0
	defer func() { s.countEligible(p, r, e, n) }()
	for n < least || n < most && len(met) < len(e.Endpoints) {
		n++
		outcome := s.world.hosts[r.source].Connect(r.flow(wait))
		if problem := s.describeDifference(r, e, outcome); problem != "" {
			s.report.count(r, e.should, n)
			return s.describe(r, e, problem)
		}
		if e.deviation != nil {
			s.report.countDeviation(e.deviation.Name)
		}
		met[outcome.Server] = true
	}
	s.report.count(r, e.should, n)
	if r.everyEndpoint && e.Verdict == plan.Forward && len(met) < len(e.Endpoints) {
		return s.describe(r, e, fmt.Sprintf("%d connections reached only the endpoints %v", n, sortedKeys(met)))
	}
	return ""
}

func (s *suite) answer(r row, e expectation) netlab.Result {
	switch {
	case e.Verdict == plan.Reject && r.protocol == plan.TCP && r.to.Addr().IsLoopback():
		return netlab.Reset // no server listens, so the kernel resets the connection even without a rule
	case e.Verdict == plan.Forward, e.Verdict == plan.Pass && e.toHost:
		return netlab.Served
	case e.Verdict == plan.Reject:
		return netlab.Refused
	case e.Verdict == plan.Pass:
		return netlab.Unreachable // the gateway responds, because no host has this address
	}
	return netlab.Silent
}

// describeDifference describes how an outcome differs from the expectation, or returns "" if it does not differ.
func (s *suite) describeDifference(r row, e expectation, outcome netlab.Outcome) string {
	if s.agrees(r, e.Decision, s.answer(r, e), outcome) {
		return ""
	}
	if e.deviation != nil &&
		s.agrees(r, e.should, s.answer(r, expectation{Decision: e.should, toHost: e.toHost}), outcome) {
		return fmt.Sprintf("%s, as specified: the declared deviation %q no longer exists", outcome, e.deviation.Name)
	}
	return outcome.String()
}

func (s *suite) agrees(r row, d plan.Decision, answer netlab.Result, outcome netlab.Outcome) bool {
	switch {
	case outcome.Result != answer:
		return false
	case answer != netlab.Served:
		return true
	case d.Verdict == plan.Pass:
		return outcome.Server == selfName && s.isSource(r, outcome.Seen.Addr())
	}
	i := slices.IndexFunc(d.Endpoints, func(e plan.Endpoint) bool {
		return e.Addr == s.world.endpoints[outcome.Server][plan.FamilyOf(r.to.Addr())]
	})
	if i < 0 {
		return false
	}
	if d.SNATFor(r.from, d.Endpoints[i]) {
		// If the host's link has an address, the relay and the shortcut connect to the endpoint from this address, as
		// the host itself does.
		relayed := (r.to.Addr().IsLoopback() || r.unbound && s.backend.Shortcut != nil) &&
			outcome.Seen.Addr() == netlab.RouterAddr4
		return relayed || slices.Contains(s.world.Node.Addrs, outcome.Seen.Addr())
	}
	return s.isSource(r, outcome.Seen.Addr())
}

// isSource reports whether the row's connections, without masquerading, may have the source address a. An unbound
// socket may use any address of the host, including the link's address.
func (s *suite) isSource(r row, a netip.Addr) bool {
	return a == r.from || r.unbound && (slices.Contains(s.world.Node.Addrs, a) || a == netlab.RouterAddr4)
}

// describe returns a line that identifies the row and states the required result, the reason for this result, and the
// actual result.
func (s *suite) describe(r row, e expectation, saw string) string {
	frontend := "no frontend"
	if e.should.Frontend != nil {
		frontend = e.should.Frontend.Kind.String() + " of " + e.should.Service.Name.String()
	}
	want := e.Verdict.String()
	if e.Verdict == plan.Forward {
		want = fmt.Sprintf("forward to one of %v", s.world.endpointNames(e.Decision, r.from))
	}
	if e.deviation != nil {
		want += fmt.Sprintf(" (declared deviation %q)", e.deviation.Name)
	}
	return fmt.Sprintf("origin %s, %s, %s: want %s, because %s; got: %s", e.should.Origin, frontend, r, want,
		e.should.Reason, saw)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
