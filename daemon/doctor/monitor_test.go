package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/fault"
)

// withMonitor runs a Monitor in a synctest bubble. The test can change the host while the Monitor sleeps.
func withMonitor(t *testing.T, do func(*Monitor, *fakeSystem, chan struct{})) {
	synctest.Test(t, func(t *testing.T) {
		h, f := testHost()
		moved := make(chan struct{}, 1)
		r := NewMonitor(MonitorOptions{Host: func() *Host { return h }, NetworkChanged: moved})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		do(r, f, moved)
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

func TestMonitorReportsBeginAndEndOfFault(t *testing.T) {
	withMonitor(t, func(r *Monitor, f *fakeSystem, moved chan struct{}) {
		r.SignalPlan()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(r.Faults()) > 0 {
			t.Fatalf("%+v on a host that has all it needs", r.Faults())
		}
		time.Sleep(runPeriod + 2*minRunGap)

		began := time.Now()
		f.edit(func() { delete(f.hops, "0.0.0.0/0") })
		moved <- struct{}{}
		time.Sleep(2 * changeDelay)
		synctest.Wait()
		if got := names(r.Faults()); got != "route-services route-endpoints" {
			t.Errorf("problems %q soon after the routes are gone", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := r.Faults()[0].Fix; got != "ip route replace 10.96.0.0/12 dev eth0 src 192.0.2.10" {
			t.Errorf("fix %q", got)
		}
		if since := r.Faults()[0].Since.Sub(began); since > time.Second {
			t.Errorf("the problem is said to be %s younger than it is", since)
		}

		f.edit(func() { f.hops["0.0.0.0/0"] = on("eth0", "192.0.2.10") })
		moved <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.Faults()) > 0 {
			t.Errorf("problems %+v after the end", r.Faults())
		}
	})
}

// Within a minute, the Monitor finds a fault that no event announces, such as a full connection-tracking table. If a
// fault disappears immediately, for example during a DHCP renewal, the Monitor's second run removes it, and Edgeway
// does not log it.
func TestMonitorChecksEachMinuteAndConfirms(t *testing.T) {
	withMonitor(t, func(r *Monitor, f *fakeSystem, moved chan struct{}) {
		r.SignalPlan()
		time.Sleep(time.Second)
		f.set("netfilter/nf_conntrack_max", "100")
		f.set("netfilter/nf_conntrack_count", "99")
		time.Sleep(runPeriod)
		synctest.Wait()
		if names(r.Faults()) != "conntrack" {
			t.Errorf("problems %q", names(r.Faults()))
		}
		f.set("netfilter/nf_conntrack_count", "9")
		time.Sleep(confirmDelay + time.Second)
		synctest.Wait()
		if len(r.Faults()) > 0 {
			t.Errorf("problems %q", names(r.Faults()))
		}
		f.set("netfilter/nf_conntrack_count", "98")
		time.Sleep(2 * runPeriod)
		synctest.Wait()
		since := r.Faults()[0].Since
		f.set("netfilter/nf_conntrack_count", "99")
		time.Sleep(2 * runPeriod)
		synctest.Wait()
		if got := r.Faults(); len(got) != 1 || !got[0].Since.Equal(since) {
			t.Errorf("a problem with changing figures, since %s: %+v", since, got)
		}
	})
}

// Frequent changes to routes or plans must not trigger constant runs of the checks.
func TestMonitorRunsArePaced(t *testing.T) {
	for what, c := range map[string]struct {
		poke func(*Monitor, chan struct{})
		most time.Duration
	}{
		"routes": {func(_ *Monitor, moved chan struct{}) {
			select {
			case moved <- struct{}{}:
			default:
			}
		}, minRunGap},
		"plans": {func(r *Monitor, _ chan struct{}) { r.SignalPlan() }, runPeriod},
	} {
		withMonitor(t, func(r *Monitor, f *fakeSystem, moved chan struct{}) {
			looks := 0
			host := r.o.Host()
			host.System = &countingSystem{fakeSystem: f, looks: &looks}
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

// countingSystem counts runs of the checks by counting reads of a file that each run reads exactly once.
type countingSystem struct {
	*fakeSystem
	looks *int
}

func (c *countingSystem) Read(path string) (string, error) {
	if path == sysctlPath(forward4) {
		*c.looks++
	}
	return c.fakeSystem.Read(path)
}

// A problem stays in the Monitor's list while the checks cannot inspect the host. The Monitor reports the problem
// neither as fixed nor as new.
func TestMonitorKeepsProblemWhileChecksFail(t *testing.T) {
	withMonitor(t, func(r *Monitor, f *fakeSystem, _ chan struct{}) {
		f.edit(func() { delete(f.hops, "0.0.0.0/0") })
		r.SignalPlan()
		time.Sleep(2 * runPeriod)
		synctest.Wait()
		const both = "route-services route-endpoints"
		if got := names(r.Faults()); got != both {
			t.Fatalf("problems %q, want %q", got, both)
		}
		f.edit(func() { f.lookupErr = unix.EMFILE })
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := names(r.Faults()); got != both {
			t.Errorf("problems %q, want %q", got, both)
		}
		f.edit(func() {
			f.lookupErr = nil
			f.hops["0.0.0.0/0"] = via("192.0.2.1", "eth0", "192.0.2.10")
		})
		time.Sleep(2 * runPeriod)
		synctest.Wait()
		if got := names(r.Faults()); got != "" {
			t.Errorf("problems %q after the end", got)
		}
	})
}

// If the checks cannot inspect the host, for example without file descriptors, the Monitor reports no problem.
func TestMonitorReportsNothingWhileChecksFail(t *testing.T) {
	withMonitor(t, func(r *Monitor, f *fakeSystem, _ chan struct{}) {
		f.edit(func() { f.lookupErr = unix.EMFILE })
		r.SignalPlan()
		time.Sleep(2 * runPeriod)
		synctest.Wait()
		if got := names(r.Faults()); got != "" {
			t.Errorf("problems %q on a host that has all it needs", got)
		}
	})
}

func TestMonitorReportsNotices(t *testing.T) {
	withMonitor(t, func(r *Monitor, f *fakeSystem, _ chan struct{}) {
		byDefault := f.hops["0.0.0.0/0"]
		byDefault.Default = true
		f.edit(func() { f.hops["0.0.0.0/0"] = byDefault })
		r.SignalPlan()
		time.Sleep(2 * runPeriod)
		synctest.Wait()
		if found := r.Faults(); len(found) != 1 || found[0].Severity != fault.Notice {
			t.Errorf("faults %+v", found)
		}
	})
}

// The Monitor removes a problem soon after an operator has fixed it, even if no event announces the fix.
func TestMonitorNoticesFixedProblemSoon(t *testing.T) {
	withMonitor(t, func(r *Monitor, f *fakeSystem, _ chan struct{}) {
		f.set("netfilter/nf_conntrack_max", "100")
		f.set("netfilter/nf_conntrack_count", "99")
		r.SignalPlan()
		time.Sleep(time.Hour + faultPeriod) // with runPeriod, the next run would be 50 s later
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

// A call to RunNow finds a fault that no event announced, and a second run soon confirms the fault.
func TestMonitorNow(t *testing.T) {
	withMonitor(t, func(r *Monitor, f *fakeSystem, _ chan struct{}) {
		f.set("netfilter/nf_conntrack_max", "100")
		r.SignalPlan()
		time.Sleep(time.Second)
		f.set("netfilter/nf_conntrack_count", "99")
		time.Sleep(maxRunAge)
		r.RunNow(context.Background())
		if got := names(r.Faults()); got != "conntrack" {
			t.Errorf("problems %q", got)
		}
		f.set("netfilter/nf_conntrack_count", "9")
		time.Sleep(confirmDelay)
		synctest.Wait()
		if got := names(r.Faults()); got != "" {
			t.Errorf("problems %q after they ended", got)
		}
	})
}

// The Monitor reports packets that the reverse path filter dropped, but only for a few minutes.
func TestMonitorForgetsReversePathFilterDrops(t *testing.T) {
	withMonitor(t, func(r *Monitor, f *fakeSystem, _ chan struct{}) {
		f.set("ipv4/conf/all/rp_filter", "1")
		f.set("ipv4/conf/eth0/rp_filter", "1")
		r.SignalPlan()
		dropped := func(count int, after time.Duration, want string) {
			t.Helper()
			f.edit(func() {
				f.files[netFiles+"netstat"] = fmt.Sprintf("TcpExt: IPReversePathFilter\nTcpExt: %d\n",
					count)
			})
			time.Sleep(after)
			synctest.Wait()
			if got := names(r.Faults()); got != want {
				t.Errorf("%d packets dropped, %s later: faults %q, want %q", count, after, got, want)
			}
		}
		dropped(0, 10*runPeriod, "")
		dropped(7, runPeriod+confirmDelay, "rp-filter")
		dropped(7, 10*runPeriod, "")
		dropped(9, runPeriod+confirmDelay, "rp-filter")
		f.set("ipv4/conf/all/rp_filter", "2")
		dropped(11, runPeriod, "")
	})
}
