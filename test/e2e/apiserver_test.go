package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"edgeway/test/e2e/cluster"
)

// After the API server restarts, the daemon must receive a change that it missed, even if a compaction has deleted the
// change from etcd's history (410 Gone). Connections must work before and after the restart.
func TestAPIServerRestartAfterCompaction(t *testing.T) {
	l, d := running(t)
	n, clusterIP, nodePort := d.shop()

	d.link.cut() // the daemon must miss the change
	n.setEndpoints("shop", ep2Addr)
	sharedState.cluster.StopAPIServer()
	began := time.Now()
	d.link.restore()
	l.must(sharedState.cluster.Compact(t.Context()))
	l.mustStay(2*time.Second, func() error {
		if err := answers(l.client, nodePort, "ep1")(); err != nil {
			return err
		}
		return d.healthy()
	})
	l.waitFor(longTimeout, d.reportsStale(time.Since(began).Truncate(time.Second)))

	l.must(sharedState.cluster.StartAPIServer(t.Context()))
	took := l.waitFor(longTimeout, answers(l.client, nodePort, "ep2"))
	t.Logf("the change that was missed arrived %.1f s after the API server was ready", took.Seconds())
	l.waitFor(longTimeout, answers(l.node, clusterIP, "ep2"))
	n.setEndpoints("shop", ep1Addr)
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
}

// If a host reboots while the API server is unreachable, the daemon must serve the Services from the last-known state
// on disk.
func TestBootWithoutAPIServer(t *testing.T) {
	l, d := running(t)
	n := l.newNamespace()
	began := time.Now().Truncate(time.Second) // the file stores times in whole seconds
	clusterIP, nodePort := n.createWeb("shop")
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	l.waitFor(longTimeout, d.hasStored(n.name))
	d.stop()
	stopped := time.Now()
	l.onNode("nft", "flush", "ruleset")
	l.must(isUnanswered(l.client, nodePort)())
	d.link.cut()

	limit := l.extendLimit(2 * time.Second)
	d.start()
	took := l.waitFor(limit, answersSoon(l.client, nodePort, "ep1"))
	t.Logf("NodePort served %.0f ms after the start", took.Seconds()*1000)
	l.waitFor(longTimeout, answers(l.node, clusterIP, "ep1"))
	l.waitFor(longTimeout, d.healthy)
	l.waitFor(longTimeout, d.statusPrints("source-kube", "serving the last-known state, saved"))
	if s, err := d.status(); err != nil || !s.LastKnown.Serving || s.LastKnown.SavedAt.Before(began) ||
		time.Since(s.LastKnown.SavedAt) < time.Since(stopped) {
		t.Errorf("the state was saved between %s and %s; edgeway status says %+v, %v", began, stopped, s.LastKnown, err)
	}

	n.setEndpoints("shop", ep2Addr)
	d.link.restore()
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep2"))
}

// Open connections to the API server go silent, as when a NAT gateway loses its state. Only the daemon's own timeouts
// can detect a silent connection.
func TestStalledWatchIsDetected(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	n, _, nodePort := d.shop()
	if d.link.stall() == 0 {
		t.Fatal("the daemon has no connection to stall")
	}
	n.setEndpoints("shop", ep2Addr)
	took := l.waitFor(5*time.Minute, func() error {
		time.Sleep(time.Second)
		return answers(l.client, nodePort, "ep2")()
	})
	t.Logf("the change arrived %.0f s after the connections had gone silent", took.Seconds())
}

func TestReadiness(t *testing.T) {
	l := newLab(t)
	clusterIP, _ := l.newNamespace().createWeb("shop")
	d := l.newDaemon()
	d.link.cut()
	d.start()
	l.waitFor(longTimeout, d.healthIs(503))
	l.mustStay(time.Second, d.healthIs(503))
	l.must(isUnanswered(l.node, clusterIP)())
	d.link.restore()
	l.waitFor(longTimeout, d.healthy)
	// A healthy daemon already serves the Services, so the first connection must succeed.
	l.must(answers(l.node, clusterIP, "ep1")())
}

// If the kubeconfig's user has no rights, the daemon must log a fault. The daemon must keep trying, because an
// administrator may grant the rights later.
func TestForbiddenIsLogged(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	d.user = cluster.Stranger
	d.configure("")
	d.start()
	l.waitFor(longTimeout, d.logged("forbidden"))
	l.must(d.healthIs(503)())
}

// reportsStale returns an error unless `edgeway status` (as text and as JSON) and /healthz report that the API server
// has been unreachable for at least the given time.
func (d *daemon) reportsStale(age time.Duration) func() error {
	return func() error {
		s, err := d.status()
		if err != nil {
			return err
		}
		stale := false
		for _, src := range s.Sources {
			stale = stale || src.Name == "kube" && src.Fault.Message != "" && s.Time.Sub(src.LastContact) >= age
		}
		if !s.Healthy || !stale {
			return fmt.Errorf("edgeway status --json should be healthy and at least %s stale: %+v", age, s)
		}
		if code, body, err := d.get(healthAddr, "/healthz"); code != 200 || !strings.Contains(body, "Source kube") {
			return fmt.Errorf("/healthz is %d and should say that the source is unreachable: %s (%w)", code, body,
				orElse(err, "no error"))
		}
		return d.statusPrints("source-kube", "ago")()
	}
}

// hasStored returns an error unless the last-known state on disk contains the given text.
func (d *daemon) hasStored(namespace string) func() error {
	return func() error {
		return d.node.Command(d.t.Context(), "grep", "-rqa", namespace, d.stateDir()).Run()
	}
}
