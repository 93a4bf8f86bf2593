package doctor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
)

// record is a log that is read while it is written.
type record struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (r *record) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(line)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *record) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Reset()
}

// onRounds runs Rounds in a bubble, on a host that can be changed while they sleep.
func onRounds(t *testing.T, do func(*Rounds, *fake, chan struct{}, *record)) {
	synctest.Test(t, func(t *testing.T) {
		h, f := testHost()
		var log record
		moved := make(chan struct{}, 1)
		r := NewRounds(RoundsOptions{Logger: slog.New(slog.NewTextHandler(&log, nil)), Host: func() *Host { return h }, Moved: moved})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		do(r, f, moved, &log)
		stop()
		<-ended
	})
}

func names(found []fault.Fault) string {
	var out []string
	for _, p := range found {
		out = append(out, p.ID)
	}
	return strings.Join(out, " ")
}

func TestRoundsFindWhatBeginsAndEnds(t *testing.T) {
	onRounds(t, func(r *Rounds, f *fake, moved chan struct{}, log *record) {
		r.Planned()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(r.Faults()) > 0 || log.String() != "" {
			t.Fatalf("%+v on a host that has all it needs, log:\n%s", r.Faults(), log)
		}
		time.Sleep(roundsPeriod + 2*afterMove)

		began := time.Now()
		f.edit(func() { delete(f.ways, "0.0.0.0/0") })
		moved <- struct{}{}
		time.Sleep(2 * settle)
		synctest.Wait()
		if got := names(r.Faults()); got != "route-services route-endpoints" || log.String() != "" {
			t.Errorf("problems %q soon after the routes are gone, log:\n%s", got, log)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := strings.Count(log.String(), messageid.HostProblem); got != 2 || !strings.Contains(log.String(), "fix=\"ip route replace 10.96.0.0/12 dev eth0 src 192.0.2.10\"") {
			t.Errorf("told %d times in an hour, want once for each:\n%s", got, log)
		}
		if since := r.Faults()[0].Since.Sub(began); since > time.Second {
			t.Errorf("the problem is said to be %s younger than it is", since)
		}

		log.Reset()
		f.edit(func() { f.ways["0.0.0.0/0"] = on("eth0", "192.0.2.10") })
		moved <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Count(log.String(), messageid.HostProblemGone); got != 2 || len(r.Faults()) > 0 {
			t.Errorf("%d ends told, problems %+v", got, r.Faults())
		}
	})
}

// What nothing announces, as the filling of a table, is found within a minute. What is gone at once, as while a lease
// is renewed, is not logged.
func TestRoundsLookEachMinuteAndLogWhatLasts(t *testing.T) {
	onRounds(t, func(r *Rounds, f *fake, moved chan struct{}, log *record) {
		r.Planned()
		time.Sleep(time.Second)
		f.set("netfilter/nf_conntrack_max", "100")
		f.set("netfilter/nf_conntrack_count", "99")
		time.Sleep(roundsPeriod)
		synctest.Wait()
		if names(r.Faults()) != "conntrack" {
			t.Errorf("problems %q", names(r.Faults()))
		}
		f.set("netfilter/nf_conntrack_count", "9")
		time.Sleep(roundsPeriod)
		synctest.Wait()
		if len(r.Faults()) > 0 || log.String() != "" {
			t.Errorf("problems %q, log:\n%s", names(r.Faults()), log)
		}
		f.set("netfilter/nf_conntrack_count", "98")
		time.Sleep(2 * roundsPeriod)
		f.set("netfilter/nf_conntrack_count", "99")
		time.Sleep(2 * roundsPeriod)
		synctest.Wait()
		if got := strings.Count(log.String(), "\n"); got != 1 {
			t.Errorf("%d lines for one problem with changing figures:\n%s", got, log)
		}
	})
}

// A router whose routes change all the time, and a cluster that does, cost little.
func TestRoundsArePaced(t *testing.T) {
	for what, c := range map[string]struct {
		poke func(*Rounds, chan struct{})
		most time.Duration
	}{
		"routes": {func(_ *Rounds, moved chan struct{}) {
			select {
			case moved <- struct{}{}:
			default:
			}
		}, afterMove},
		"plans": {func(r *Rounds, _ chan struct{}) { r.Planned() }, roundsPeriod},
	} {
		onRounds(t, func(r *Rounds, f *fake, moved chan struct{}, _ *record) {
			looks := 0
			host := r.o.Host()
			host.System = &counting{fake: f, looks: &looks}
			const span = 10 * time.Minute
			for range int(span / (100 * time.Millisecond)) {
				c.poke(r, moved)
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
			if most := int(span/c.most) + 2; looks < most/2 || looks > most {
				t.Errorf("%s: %d looks in %s, at most %d", what, looks, span, most)
			}
		})
	}
}

// counting counts the looks by a file that each reads once.
type counting struct {
	*fake
	looks *int
}

func (c *counting) Read(path string) (string, error) {
	if path == sysctlPath(forward4) {
		*c.looks++
	}
	return c.fake.Read(path)
}

// A problem has not ended because the daemon cannot look: it is told neither as gone nor as new.
func TestRoundsKeepAProblemWhileTheyCannotLook(t *testing.T) {
	onRounds(t, func(r *Rounds, f *fake, _ chan struct{}, log *record) {
		f.edit(func() { delete(f.ways, "0.0.0.0/0") })
		r.Planned()
		time.Sleep(2 * roundsPeriod)
		synctest.Wait()
		const both = "route-services route-endpoints"
		if got := names(r.Faults()); got != both {
			t.Fatalf("problems %q, want %q", got, both)
		}
		log.Reset()
		f.edit(func() { f.wayErr = unix.EMFILE })
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := names(r.Faults()); got != both || log.String() != "" {
			t.Errorf("problems %q, want %q; log:\n%s", got, both, log)
		}
		f.edit(func() {
			f.wayErr = nil
			f.ways["0.0.0.0/0"] = via("192.0.2.1", "eth0", "192.0.2.10")
		})
		time.Sleep(2 * roundsPeriod)
		synctest.Wait()
		if got := names(r.Faults()); got != "" || strings.Count(log.String(), messageid.HostProblemGone) != 2 {
			t.Errorf("problems %q after the end; log:\n%s", got, log)
		}
	})
}

// A notice is kept and logged, but not as a problem.
func TestRoundsHaveNotices(t *testing.T) {
	onRounds(t, func(r *Rounds, f *fake, _ chan struct{}, log *record) {
		byDefault := f.ways["0.0.0.0/0"]
		byDefault.Default = true
		f.edit(func() { f.ways["0.0.0.0/0"] = byDefault })
		r.Planned()
		time.Sleep(2 * roundsPeriod)
		synctest.Wait()
		if found := r.Faults(); len(found) != 1 || found[0].Severity != fault.Notice {
			t.Errorf("faults %+v", found)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=INFO") {
			t.Errorf("log:\n%s", text)
		}
	})
}

// An operator who has fixed a problem that nothing announces sees its end soon.
func TestRoundsSeeTheEndOfAProblemSoon(t *testing.T) {
	onRounds(t, func(r *Rounds, f *fake, _ chan struct{}, _ *record) {
		f.set("netfilter/nf_conntrack_max", "100")
		f.set("netfilter/nf_conntrack_count", "99")
		r.Planned()
		time.Sleep(time.Hour + faultPeriod) // a look of each minute would be 50 s away
		synctest.Wait()
		if names(r.Faults()) != "conntrack" {
			t.Fatalf("problems %q", names(r.Faults()))
		}
		f.set("netfilter/nf_conntrack_count", "9")
		time.Sleep(faultPeriod)
		synctest.Wait()
		if len(r.Faults()) > 0 {
			t.Errorf("problems %q", names(r.Faults()))
		}
	})
}

// What the reverse path filter dropped is shown for some minutes.
func TestRoundsForgetWhatTheReversePathFilterDropped(t *testing.T) {
	onRounds(t, func(r *Rounds, f *fake, _ chan struct{}, _ *record) {
		f.set("ipv4/conf/all/rp_filter", "1")
		f.set("ipv4/conf/eth0/rp_filter", "1")
		r.Planned()
		dropped := func(count int, after time.Duration, want string) {
			t.Helper()
			f.edit(func() { f.files[netFiles+"netstat"] = fmt.Sprintf("TcpExt: IPReversePathFilter\nTcpExt: %d\n", count) })
			time.Sleep(after)
			synctest.Wait()
			if got := names(r.Faults()); got != want {
				t.Errorf("%d packets dropped, %s later: faults %q, want %q", count, after, got, want)
			}
		}
		dropped(0, 10*roundsPeriod, "")
		dropped(7, roundsPeriod+confirmed, "rp-filter")
		dropped(7, 10*roundsPeriod, "")
		dropped(9, roundsPeriod+confirmed, "rp-filter")
		f.set("ipv4/conf/all/rp_filter", "2")
		dropped(11, roundsPeriod, "")
	})
}
