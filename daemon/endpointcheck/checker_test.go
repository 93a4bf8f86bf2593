package endpointcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/journal"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
)

var defaults = Settings{Interval: time.Second, Failures: 2}

// maxDeadTime is the maximum time that a dead endpoint may stay in use with the default settings.
const maxDeadTime = 3 * time.Second

// network simulates endpoints, which respond immediately unless faults maps them to an error. An endpoint with the
// error errSilent never responds.
type network struct {
	mu       sync.Mutex
	faults   map[netip.AddrPort]error
	dialled  map[netip.AddrPort]int
	starts   []time.Time
	inFlight int
	maxConns int // maxConns is the maximum number of simultaneous connections
}

var errSilent = errors.New("silent")

func (n *network) set(fault error, of ...netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range of {
		n.faults[a] = fault
	}
}

func (n *network) count(a netip.AddrPort) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialled[a]
}

func (n *network) dial(ctx context.Context, to netip.AddrPort) error {
	n.mu.Lock()
	fault := n.faults[to]
	n.dialled[to]++
	n.starts = append(n.starts, time.Now())
	n.inFlight++
	n.maxConns = max(n.maxConns, n.inFlight)
	n.mu.Unlock()
	if errors.Is(fault, errSilent) {
		<-ctx.Done()
		fault = ctx.Err()
	}
	n.mu.Lock()
	n.inFlight--
	n.mu.Unlock()
	return fault
}

func at(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
}

func many(n int) (out []netip.AddrPort) {
	for i := range n {
		out = append(out, at(i))
	}
	return out
}

type bench struct {
	*testing.T
	*Checker
	*network
	log  *bytes.Buffer
	stop func()
}

func newBench(t *testing.T, s Settings) *bench {
	network := &network{faults: map[netip.AddrPort]error{}, dialled: map[netip.AddrPort]int{}}
	b := &bench{T: t, network: network, log: &bytes.Buffer{}}
	b.Checker = New(journal.NewDamper(slog.New(slog.NewTextHandler(b.log, nil))))
	b.start(s)
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bench) start(s Settings) {
	b.Configure(s)
	b.Checker.dial = b.network.dial
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- b.Checker.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			b.Errorf("Run: %v", err)
		}
		b.stop = func() {}
	}
}

func (b *bench) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func listOf(d *DeadEndpoints) []netip.AddrPort {
	if d == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(d.Faults), netip.AddrPort.Compare)
}

func (b *bench) wantDead(want ...netip.AddrPort) {
	b.Helper()
	if got := listOf(b.DeadEndpoints()); !slices.Equal(got, want) {
		b.Fatalf("after %s dead are %v, want %v", time.Since(epoch), got, want)
	}
}

// epoch is the initial time of each synctest bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func inBubble(t *testing.T, s Settings, f func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, s)
		f(b)
		b.stop()
	})
}

func TestEndpointTransitionTimes(t *testing.T) {
	for name, fault := range map[string]error{"refuses": unix.ECONNREFUSED, "is silent": errSilent} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, defaults, func(b *bench) {
				b.UpdateTargets(Targets{All: true, Add: many(3)})
				b.wait(10 * time.Second)
				b.wantDead()
				if b.CountEndpoints() != 3 {
					t.Errorf("%d endpoints are checked", b.CountEndpoints())
				}
				for range 50 { // vary the start of the fault within the check interval
					died := time.Now()
					b.set(fault, at(1))
					<-b.Changed()
					b.wantDead(at(1))
					took, since := time.Since(died), b.DeadEndpoints().Faults[at(1)].Since
					if took > maxDeadTime || took < defaults.Interval/2 || since.Before(died) ||
						since.After(died.Add(defaults.Interval)) {
						t.Fatalf("dead after %s, since %s", took, since.Sub(died))
					}
					b.set(nil, at(1))
					back := time.Now()
					<-b.Changed()
					b.wantDead()
					if took := time.Since(back); took > maxDeadTime {
						t.Fatalf("back after %s", took)
					}
					b.wait(137 * time.Millisecond)
				}
			})
		})
	}
}

func TestOneFailedCheckKeepsEndpointAlive(t *testing.T) {
	inBubble(t, defaults, func(b *bench) {
		b.UpdateTargets(Targets{Add: many(1)})
		b.wait(5 * time.Second)
		for range 20 {
			b.set(unix.ECONNREFUSED, at(0))
			for before := b.count(at(0)); b.count(at(0)) == before; {
				b.wait(time.Millisecond)
			}
			b.set(nil, at(0))
			b.wait(2 * time.Second)
			b.wantDead()
		}
	})
}

func TestLocalErrorsKeepVerdict(t *testing.T) {
	inBubble(t, defaults, func(b *bench) {
		b.UpdateTargets(Targets{Add: many(2)})
		b.set(unix.ECONNREFUSED, at(1))
		b.wait(5 * time.Second)
		b.wantDead(at(1))
		b.set(fmt.Errorf("dial: %w", unix.EMFILE), at(0), at(1))
		b.wait(time.Minute)
		b.wantDead(at(1))
	})
}

// The Checker checks each endpoint once per interval, until the planner removes the endpoint.
func TestChecksFollowTargets(t *testing.T) {
	inBubble(t, defaults, func(b *bench) {
		b.UpdateTargets(Targets{All: true, Add: many(3)})
		b.set(unix.EHOSTUNREACH, at(2))
		b.wait(time.Minute)
		for i := range 3 {
			if n := b.count(at(i)); n < 59 || n > 68 {
				t.Errorf("%d checks of endpoint %d in a minute", n, i)
			}
		}
		b.wantDead(at(2))
		b.UpdateTargets(Targets{Drop: []netip.AddrPort{at(1), at(2)}})
		b.wait(time.Second)
		b.wantDead()
		before := b.count(at(1)) + b.count(at(2))
		b.wait(time.Minute)
		if n := b.count(at(1)) + b.count(at(2)); n != before || b.CountEndpoints() != 1 {
			t.Errorf("%d checks after the end, %d endpoints", n-before, b.CountEndpoints())
		}
		b.UpdateTargets(Targets{Add: []netip.AddrPort{at(2)}})
		b.wait(500 * time.Millisecond)
		b.wantDead() // a new endpoint counts as alive until the first failures
		b.wait(3 * time.Second)
		b.wantDead(at(2))
	})
}

// A reload stops one Run and starts another. Between two Runs, dead endpoints remain dead, and the Checker forgets
// endpoints that are no longer targets.
func TestVerdictsSurviveNextRun(t *testing.T) {
	inBubble(t, defaults, func(b *bench) {
		b.UpdateTargets(Targets{All: true, Add: many(3)})
		b.set(errSilent, at(0), at(1))
		b.wait(5 * time.Second)
		b.wantDead(at(0), at(1))
		b.stop()
		b.wantDead(at(0), at(1))
		b.start(defaults)
		b.UpdateTargets(Targets{All: true, Add: many(3)[1:]})
		b.wait(100 * time.Millisecond)
		b.wantDead(at(1))
		b.wait(time.Minute)
		b.wantDead(at(1))
		b.set(nil, at(1))
		b.wait(maxDeadTime)
		b.wantDead()
		b.set(errSilent, at(2))
		b.wait(maxDeadTime)
		b.wantDead(at(2))
		b.stop()
		b.Forget()
		b.wantDead()
		b.start(defaults)
		b.wait(time.Minute)
		if b.wantDead(); b.CountEndpoints() != 0 {
			t.Errorf("%d endpoints after Forget", b.CountEndpoints())
		}
	})
}

func TestInterruptedCheckIsNoFailure(t *testing.T) {
	s := defaults
	s.Failures = 1
	inBubble(t, s, func(b *bench) {
		b.UpdateTargets(Targets{Add: many(100)})
		b.wait(10 * time.Second)
		b.set(errSilent, many(100)...)
		b.wait(400 * time.Millisecond)
		b.stop()
		b.set(nil, many(100)...)
		b.start(s)
		b.wait(10 * time.Second)
		b.wantDead()
	})
}

// This host opens at most maxRate connections per second, regardless of the number of endpoints. The limit also applies
// after the first list of endpoints arrives, after a network recovers, and while Edgeway adds and removes endpoints.
func TestConnectionRateIsBounded(t *testing.T) {
	inBubble(t, defaults, func(b *bench) {
		b.UpdateTargets(Targets{All: true, Add: many(10 * maxRate)})
		b.wait(15 * time.Second)
		b.set(errSilent, many(10*maxRate)...)
		b.wait(30 * time.Second)
		b.set(nil, many(10*maxRate)...)
		b.wait(15 * time.Second)
		for i := range 100 {
			b.UpdateTargets(Targets{All: true, Add: many(10 * maxRate)[i*20:]})
			b.wait(50 * time.Millisecond)
			b.UpdateTargets(Targets{All: true, Add: many(10 * maxRate)[:i*20]})
			b.wait(50 * time.Millisecond)
		}
		b.stop()
		for i, from := range b.starts[:len(b.starts)-maxRate-maxBurst] {
			if took := b.starts[i+maxRate+maxBurst].Sub(from); took < time.Second {
				t.Fatalf("%d checks within %s, after %s", maxRate+maxBurst, took, from.Sub(epoch))
			}
		}
	})
}

// The Checker limits the checks per second, the simultaneous checks, the changes to the list of dead endpoints, and the
// log lines.
func TestManyEndpointsAreCheckedLessOften(t *testing.T) {
	const n = 10 * maxRate
	inBubble(t, defaults, func(b *bench) {
		changes := 0
		b.UpdateTargets(Targets{All: true, Add: many(n)})
		b.wait(12 * time.Second)
		total := func() (sum int) {
			for i := range n {
				sum += b.count(at(i))
			}
			return sum
		}
		before := total()
		b.wait(20 * time.Second)
		if rate := (total() - before) / 20; rate > maxRate*12/10 || rate < maxRate*9/10 {
			t.Errorf("%d checks a second of %d endpoints", rate, n)
		}
		b.set(unix.ECONNREFUSED, many(n)...)
		for died := time.Now(); time.Since(died) < 25*time.Second; changes++ {
			<-b.Changed()
			if b.DeadEndpoints().Len() == n {
				break
			}
		}
		if b.DeadEndpoints().Len() != n || changes > 250 {
			t.Errorf("%d are dead after %d changes", b.DeadEndpoints().Len(), changes)
		}
		b.set(errSilent, many(n)...)
		b.wait(time.Minute)
		if b.maxConns != maxInFlight {
			t.Errorf("%d checks at a time", b.maxConns)
		}
		if lines := strings.Count(b.log.String(), "\n"); lines > 80 || !strings.Contains(b.log.String(), "omitted=") {
			t.Errorf("%d lines of %d endpoints:\n%.3000s", lines, n, b.log)
		}
	})
}

func TestTransitionsAreLoggedOnce(t *testing.T) {
	inBubble(t, defaults, func(b *bench) {
		b.UpdateTargets(Targets{Add: many(2)})
		b.set(errSilent, at(1))
		b.wait(time.Minute)
		b.set(nil, at(1))
		b.wait(time.Minute)
		log := b.log.String()
		for _, want := range []string{
			"message_id=" + messageid.EndpointDead + ` endpoint=10.1.0.1:80 fault="no answer within 500ms" checks=2`,
			"message_id=" + messageid.EndpointAlive + " endpoint=10.1.0.1:80 dead_for=",
		} {
			if strings.Count(log, want) != 1 {
				t.Errorf("the log has not once %q:\n%s", want, log)
			}
		}
		if strings.Count(log, "\n") != 2 {
			t.Errorf("the log has more:\n%s", log)
		}
	})
}

func TestDeadDifference(t *testing.T) {
	dead := func(list ...netip.AddrPort) *DeadEndpoints {
		d := &DeadEndpoints{Faults: map[netip.AddrPort]fault.Fault{}}
		for _, a := range list {
			d.Faults[a] = fault.Fault{}
		}
		return d
	}
	for _, c := range []struct {
		a, b *DeadEndpoints
		want []netip.AddrPort
	}{
		{nil, nil, nil},
		{nil, dead(at(1)), many(2)[1:]},
		{dead(at(1)), nil, many(2)[1:]},
		{dead(at(0), at(1)), dead(at(1)), many(1)},
		{dead(at(0)), dead(at(1)), many(2)},
		{dead(at(0)), dead(at(0)), nil},
	} {
		got := Difference(c.a, c.b)
		slices.SortFunc(got, netip.AddrPort.Compare)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v and %v: %v, want %v", listOf(c.a), listOf(c.b), got, c.want)
		}
	}
}
