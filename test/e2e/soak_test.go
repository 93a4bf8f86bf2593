package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	soakChanges = 5 // changes per second
	soakFault   = time.Minute
	// soakWarmup is the time for which the load runs before the first measurement.
	soakWarmup = 2 * time.Minute
)

// Endpoints change five times a second. For half of each minute, a proxy in front of the API server simulates one of
// several faults. No connection to an unchanged Service may fail. The daemon's memory use and its numbers of goroutines
// and open files must not grow over time. The script scripts/soak sets the test's duration in the environment variable
// SOAK_DURATION.
func TestNightlySoak(t *testing.T) {
	length := 10 * time.Minute
	if text := os.Getenv("SOAK_DURATION"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil || length < 2*soakWarmup {
			t.Fatalf("SOAK_DURATION=%s: want a duration of at least %s", text, 2*soakWarmup)
		}
	}
	s := newSoak(t)
	connected := s.connect()
	for began := time.Now(); time.Since(began) < length; {
		s.runMinute(time.Since(began))
	}
	close(s.stop)
	if failed := <-connected; len(failed) > 0 {
		t.Errorf("%d connections to a Service that did not change failed, first: %v", len(failed), failed[0])
	}
	s.proxy.setFault(nil)
	s.waitFor(longTimeout, s.healthy)
	s.judge()
}

// soak holds the test's measurements and the daemon, which is under constant load.
type soak struct {
	*daemon
	proxy    *faultProxy
	n        *namespace
	services []string
	faults   []*faultRow
	stop     chan struct{}
	changes  int
	figures  []figures
}

// figures holds the daemon's memory in bytes, the number of its goroutines, and the number of its open files.
type figures struct{ memory, goroutines, files float64 }

func newSoak(t *testing.T) *soak {
	t.Helper()
	l := newLab(t)
	s := &soak{daemon: l.newDaemon(), proxy: newFaultProxy(l), faults: faultRows(), stop: make(chan struct{})}
	s.proxy.kubeconfig(filepath.Join(s.dir, "kubeconfig"))
	s.n = l.newNamespace()
	for i := range 50 {
		name := fmt.Sprint("changing-", i)
		s.n.createWeb(name)
		s.services = append(s.services, name)
	}
	s.startReady()
	return s
}

// connect connects repeatedly to two addresses of an unchanged Service until stop is closed, and then sends the errors
// on the returned channel.
func (s *soak) connect() <-chan []error {
	clusterIP, nodePort := s.n.createWeb("constant")
	s.waitFor(longTimeout, answers(s.node, clusterIP, "ep1"))
	s.waitFor(longTimeout, answers(s.client, nodePort, "ep1"))
	ask := []func() error{answers(s.node, clusterIP, "ep1"), answers(s.client, nodePort, "ep1")}
	result := make(chan []error, 1)
	go func() {
		var failed []error
		asked := 0
		for {
			select {
			case <-s.stop:
				s.t.Logf("%d connections to a Service that did not change", asked)
				result <- failed
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err := ask[asked%2](); err != nil {
				failed = append(failed, err)
			}
			asked++
		}
	}()
	return result
}

// runMinute changes endpoints for a minute. During the second half of that minute, the proxy in front of the API server
// simulates a fault.
func (s *soak) runMinute(since time.Duration) {
	s.t.Helper()
	row := s.faults[int(since/soakFault)%len(s.faults)]
	pace := time.NewTicker(time.Second / soakChanges)
	defer pace.Stop()
	for i := range int(soakFault.Seconds()) * soakChanges {
		if i == int(soakFault.Seconds())*soakChanges/2 {
			s.proxy.setFault(&row.fault)
		}
		<-pace.C
		addrs := []string{ep1Addr, ep2Addr}
		s.n.setEndpoints(s.services[s.changes%len(s.services)], addrs[s.changes/len(s.services)%2])
		s.changes++
	}
	s.proxy.setFault(nil)
	if since > soakWarmup {
		s.figures = append(s.figures, s.figuresNow())
		s.t.Logf("%4.0f s, %5d changes, fault %-24s %+v", since.Seconds(), s.changes, row.name,
			s.figures[len(s.figures)-1])
	}
}

func (s *soak) figuresNow() (f figures) {
	s.t.Helper()
	_, body, err := s.get(metricsAddr, "/metrics")
	s.must(err)
	for name, into := range map[string]*float64{
		"process_resident_memory_bytes": &f.memory, "go_goroutines": &f.goroutines, "process_open_fds": &f.files,
	} {
		_, value, _ := strings.Cut(body, "\n"+name+" ")
		value, _, _ = strings.Cut(value, "\n")
		*into, err = strconv.ParseFloat(value, 64)
		s.must(err)
	}
	return f
}

func (s *soak) judge() {
	s.t.Helper()
	half := len(s.figures) / 2
	for name, c := range map[string]struct {
		of    func(figures) float64
		slack float64
	}{
		"bytes of memory": {func(f figures) float64 { return f.memory }, 8 << 20},
		"goroutines":      {func(f figures) float64 { return f.goroutines }, 10},
		"open files":      {func(f figures) float64 { return f.files }, 5},
	} {
		first, last := median(s.figures[:half], c.of), median(s.figures[half:], c.of)
		if last > first*1.1+c.slack {
			s.t.Errorf("%s: %.0f at first, %.0f at last", name, first, last)
		}
	}
}

func median(of []figures, value func(figures) float64) float64 {
	var all []float64
	for _, f := range of {
		all = append(all, value(f))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
