package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/proxiers/plan"
)

// The daemon must not use a damaged last-known state. Instead, the daemon must rename the damaged files, log the
// damage, and wait for the API server.
func TestDamagedStateOnDisk(t *testing.T) {
	l, d := running(t)
	n, _, nodePort := d.shop()
	l.waitFor(longTimeout, d.hasStored(n.name))
	d.stop()
	l.onNode("nft", "flush", "ruleset")
	d.link.cut()

	files := d.stateFiles()
	for _, f := range files {
		raw, err := os.ReadFile(f)
		l.must(err)
		raw[len(raw)/2] ^= 0xff
		l.must(os.WriteFile(f, raw, 0o600))
	}
	d.start()
	l.waitFor(longTimeout, d.healthIs(503))
	l.waitFor(longTimeout, d.logged("last-known state not used", "damaged"))
	if aside, err := filepath.Glob(filepath.Join(d.stateDir(), "*damaged*")); err != nil || len(aside) == 0 {
		t.Errorf("the damaged files were not kept for a person to look at: %v", err)
	}
	l.must(isUnanswered(l.client, nodePort)())
	d.link.restore()
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	l.waitFor(longTimeout, d.healthy)
}

func (d *daemon) stateFiles() []string {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.stateDir(), "*"))
	d.must(err)
	if len(files) == 0 {
		d.t.Fatal("there is no state on disk")
	}
	return files
}

// If the API server accepts objects that Edgeway cannot serve, all other Services must still work.
func TestBadObjectsDoNotAffectOthers(t *testing.T) {
	l, d := running(t)
	n := l.newNamespace()
	l.must(l.node.Serve("node", netip.MustParseAddrPort(at(nodeAddr, 80)), plan.TCP))
	const shared198 = "198.51.100.20"
	external := func(addr string) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{addr} }
	}

	n.createService("older", external(shared198))
	n.setEndpoints("older", ep1Addr)
	time.Sleep(1100 * time.Millisecond) // creation times have a resolution of one second
	younger := n.createService("younger", external(shared198))
	n.setEndpoints("younger", ep2Addr)
	n.createService("thief", external(nodeAddr))
	n.setEndpoints("thief", ep1Addr)
	n.orphan("orphan")
	clusterIP, nodePort := n.createWeb("good")

	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	l.waitFor(longTimeout, answers(l.node, clusterIP, "ep1"))
	l.waitFor(longTimeout, answers(l.client, at(younger.Spec.ClusterIP, 80), "ep2"))
	l.mustStay(time.Second, answers(l.client, at(shared198, 80), "ep1"))
	l.must(answers(l.client, at(nodeAddr, 80), "node")())
	for _, words := range [][]string{
		{n.name + "/younger", shared198},
		{n.name + "/thief", nodeAddr},
		{n.name + "/orphan"},
	} {
		l.waitFor(longTimeout, d.names(words...))
		l.waitFor(longTimeout, d.logged(words...))
	}
	l.must(d.healthy())

	n.remove("older")
	l.waitFor(longTimeout, answers(l.client, at(shared198, 80), "ep2"))
}

func (d *daemon) names(words ...string) func() error {
	return func() error {
		s, err := d.status()
		if err != nil {
			return err
		}
		for _, p := range s.Problems.First {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.String(), w) }) {
				return nil
			}
		}
		return fmt.Errorf("no problem in edgeway status names %q: %q", words, s.Problems.First)
	}
}

func (n *namespace) orphan(name string) {
	n.t.Helper()
	_, err := sharedState.admin.Discovery.EndpointSlices(n.name).Create(n.t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ep1Addr}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(endpointPort))}},
	}, metav1.CreateOptions{})
	n.must(err)
	n.t.Cleanup(func() { n.remove(name) })
}
