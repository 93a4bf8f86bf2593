package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The daemon must spend at most half of its time on a Service whose endpoints change 50 times a second. While the
// endpoints change, the daemon must also apply other tenants' changes. When the endpoints stop changing, the daemon
// must apply the last change.
func TestFlappingServiceUsesHalfOfTime(t *testing.T) {
	l, d := running(t)
	n := l.newNamespace()
	flapping, _ := n.createWeb("flapping")
	l.waitFor(longTimeout, answers(l.client, flapping, "ep1"))
	began, syncs, busy, ticks := time.Now(), d.partialSyncs("count"), d.partialSyncs("sum"), d.cpuTicks(4)
	done := make(chan error, 1)
	const changes = 600
	go func() { done <- n.flap("flapping", changes) }()
	quick := n.soon("meanwhile")
	l.must(<-done)
	span := time.Since(began).Seconds()
	syncs, busy, ticks = d.partialSyncs("count")-syncs, d.partialSyncs("sum")-busy, d.cpuTicks(4)-ticks
	if syncs == 0 || busy > 0.5*span {
		t.Errorf("%.0f syncs took %.1f s of %.1f s, want at most half", syncs, busy, span)
	}
	t.Logf("%.0f changes a second: %.1f syncs a second, %.1f %% of a processor with all programs; a new Service after %.1f s",
		changes/span, syncs/span, float64(ticks)/span, quick.Seconds())
	n.setEndpoints("flapping", ep2Addr)
	l.waitFor(longTimeout, answers(l.client, flapping, "ep2"))
}

// flap adds and removes a Service's second endpoint, 50 times a second if the API server is fast enough.
func (n *namespace) flap(service string, changes int) error {
	slices := sharedState.admin.Discovery.EndpointSlices(n.name)
	slice, err := slices.Get(n.t.Context(), service, metav1.GetOptions{})
	if err != nil {
		return err
	}
	one := slice.Endpoints
	two := append(one[:1:1], discoveryv1.Endpoint{
		Addresses:  []string{ep2Addr},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := range changes {
		<-tick.C
		slice.ResourceVersion, slice.Endpoints = "", one
		if i%2 == 0 {
			slice.Endpoints = two
		}
		if _, err := slices.Update(n.t.Context(), slice, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// partialSyncs returns the number of partial syncs if part is "count", or their total duration in seconds if part is
// "sum".
func (d *daemon) partialSyncs(part string) float64 {
	d.t.Helper()
	name := "edgeway_sync_duration_seconds_" + part + `{kind="partial",stage="nftables"} `
	_, body, err := d.get(metricsAddr, "/metrics")
	d.must(err)
	_, value, found := strings.Cut(body, "\n"+name)
	value, _, _ = strings.Cut(value, "\n")
	number, err := strconv.ParseFloat(value, 64)
	if !found || err != nil {
		d.t.Fatal(fmt.Errorf("metric %s%q: %w", name, value, orElse(err, "it is not there")))
	}
	return number
}
