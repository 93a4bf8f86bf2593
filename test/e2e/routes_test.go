package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// dualHomedHost is a host with two links and no default route. The endpoint on each link has no route beyond that link,
// and therefore can reply only to the host's address on that link.
type dualHomedHost struct {
	*daemon
	far1, far2 *netlab.Host
}

const (
	island1, island16 = "10.50.1.1", "fd00:50:1::1"
	island2, island26 = "10.50.2.1", "fd00:50:2::1"
)

// dualHomedManifest contains a dual-stack Service with the endpoint far1 or far2. The format's arguments are the
// Service's name and the endpoint's number.
const dualHomedManifest = `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.97.0.%[2]d
  clusterIPs: [10.97.0.%[2]d, "fd00:97::%[2]d"]
  ipFamilies: [IPv4, IPv6]
  externalIPs: [198.51.100.7%[2]d, "2001:db8:51::7%[2]d"]
  ports: [{port: 80, nodePort: 3008%[2]d, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-4, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.50.%[2]d.2]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-6, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv6
ports: [{port: 8080, protocol: TCP}]
endpoints: [{addresses: ["fd00:50:%[2]d::2"]}]
`

func newDualHomedHost(t *testing.T) *dualHomedHost {
	t.Helper()
	l := newLab(t)
	i := &dualHomedHost{daemon: l.newDaemon()}
	i.far1 = i.addRemoteHost("far1", island1, "10.50.1.2", island16, "fd00:50:1::2")
	i.far2 = i.addRemoteHost("far2", island2, "10.50.2.2", island26, "fd00:50:2::2")
	l.onNode("ip", "route", "del", "default")
	l.onNode("ip", "-6", "route", "del", "default")
	l.must(os.WriteFile(filepath.Join(i.dir, "services.yaml"),
		[]byte(fmt.Sprintf(dualHomedManifest, "one", 1)+fmt.Sprintf(dualHomedManifest, "two", 2)), 0o600))
	return i
}

// addRemoteHost adds a host whose only routes are to one IPv4 address and one IPv6 address of the node.
func (i *dualHomedHost) addRemoteHost(name string, addrs ...string) *netlab.Host {
	i.t.Helper()
	h := i.net.Host(name, netip.MustParseAddr(addrs[1]), netip.MustParseAddr(addrs[3]))
	for n, family := range []string{"-4", "-6"} {
		node := netip.MustParseAddr(addrs[2*n])
		i.net.AddNodeAddr(name, node)
		for _, args := range [][]string{{"route", "del", "default"}, {"route", "add", node.String(), "dev", "eth0"}} {
			if out, err := h.Command(i.t.Context(), "ip",
				append([]string{family}, args...)...).CombinedOutput(); err != nil {
				i.t.Fatalf("%s: ip %v: %v: %s", name, args, err, out)
			}
		}
	}
	for _, a := range h.Addrs {
		i.must(h.Serve(name, netip.AddrPortFrom(a, endpointPort), plan.TCP))
	}
	return h
}

// configureHost writes a configuration with a manifest directory as the only source.
func (i *dualHomedHost) configureHost(backend, node, extra string) {
	i.t.Helper()
	text := fmt.Sprintf(`version = 1
[node]
name = %q
%s
[source.file]
paths = [%q]
[source.lastknown]
directory = %q
[control]
socket = %q
[health]
address = %q
[metrics]
address = %q
[proxy]
backend = %q
service_cidrs = ["10.97.0.0/24", "fd00:97::/112"]
%s`, nodeName, node, filepath.Join(i.dir, "services.yaml"), filepath.Join(i.dir, "state"), filepath.Join(i.dir, "edgeway.sock"), healthAddr, metricsAddr, backend, extra)
	i.must(os.WriteFile(i.config, []byte(text), 0o600))
}

// hostReaches returns a check that fails unless the given server responds to a connection from the host to addr. The
// kernel chooses the source address.
func (i *dualHomedHost) hostReaches(addr, server string) func() error {
	f := netlab.Flow{
		Protocol: plan.TCP, To: netip.MustParseAddrPort(addr), Wait: dialTimeout, ReplyWait: replyTimeout,
	}
	return func() error {
		if got := i.node.Connect(f); got.Server != server {
			return fmt.Errorf("TCP from the host to %s: %s, want served by %q", addr, got, server)
		}
		return nil
	}
}

func (i *dualHomedHost) tables() string {
	i.t.Helper()
	return i.onNode("ip", "route", "show", "table", "all") + i.onNode("ip", "-6", "route", "show", "table", "all")
}

// hasOwnRoutes returns a check that fails unless the daemon has added kernel routes to exactly the wanted destinations.
// The parameter want lists the destinations in the order in which ip-route(8) prints them.
func (i *dualHomedHost) hasOwnRoutes(want ...string) func() error {
	return func() error {
		var got []string
		for line := range strings.Lines(i.onNode("ip", "-4", "route", "show", "proto", "119") + i.onNode("ip", "-6",
			"route", "show", "proto", "119")) {
			got = append(got, strings.Fields(line)[0])
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("the daemon has routes to %v, want %v", got, want)
		}
		return nil
	}
}

var islandRoutes = []string{
	"10.97.0.0/24", "198.51.100.71", "198.51.100.72", "2001:db8:51::71", "2001:db8:51::72",
	"fd00:97::/112",
}

// On a host without a default route, every kind of Service address must work for the host itself and for other hosts.
// The test covers both address families, both links and each backend. The command `edgeway cleanup` must restore the
// host's routes.
func TestHostWithoutDefaultRoute(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
		t.Run(backend, func(t *testing.T) { testIsland(t, backend) })
	}
}

func testIsland(t *testing.T, backend string) {
	i := newDualHomedHost(t)
	i.stableKernelState()
	before := i.tables()
	i.configureHost(backend, fmt.Sprintf("addresses = [%q, %q]", island1, island16), "")
	if err := i.hostReaches("10.97.0.1:80", "")(); err != nil ||
		!strings.Contains(i.onNode("sh", "-c", "ip route get 10.97.0.1 2>&1 || true"), "unreachable") {
		t.Fatalf("the host has a way to a ClusterIP before: %v", err)
	}
	i.startReady()
	i.waitFor(longTimeout, i.hasOwnRoutes(islandRoutes...))
	for _, c := range []struct{ addr, server string }{
		{"10.97.0.1:80", "far1"},
		{"10.97.0.2:80", "far2"},
		{"[fd00:97::1]:80", "far1"},
		{"[fd00:97::2]:80", "far2"},
		{"198.51.100.71:80", "far1"},
		{"198.51.100.72:80", "far2"},
		{"[2001:db8:51::71]:80", "far1"},
		{"[2001:db8:51::72]:80", "far2"},
		{at(island1, 30081), "far1"},
		{at(island1, 30082), "far2"},
		{at(island16, 30081), "far1"},
		{at(island16, 30082), "far2"},
	} {
		i.waitFor(longTimeout, i.hostReaches(c.addr, c.server))
	}
	for _, c := range []struct{ addr, server string }{
		{"198.51.100.71:80", "far1"}, {"198.51.100.72:80", "far2"}, {at(island1, 30082), "far2"}, {at(island1, 30081), "far1"},
	} {
		i.waitFor(longTimeout, answers(i.client, c.addr, c.server))
	}
	i.waitFor(longTimeout, answers(i.far1, at(island16, 30082), "far2"))

	i.stop()
	i.must(i.hasOwnRoutes(islandRoutes...)())
	i.must(i.hostReaches("10.97.0.2:80", "far2")())
	for range 2 { // the second run must succeed although there is nothing left to remove
		if out, errs, code := i.edgeway("cleanup"); code != 0 {
			t.Fatalf("edgeway cleanup ended with %d: %s%s", code, out, errs)
		}
		if after := i.tables(); after != before {
			t.Fatalf("routes before:\n%s\nafter edgeway cleanup:\n%s", before, after)
		}
	}
}

// If another program deletes the daemon's kernel routes, the daemon must restore them. When a default route appears,
// the daemon must delete its own routes in that address family. The daemon must also apply changes to the setting
// routes.services.
func TestServiceRoutesAreMaintained(t *testing.T) {
	t.Parallel()
	i := newDualHomedHost(t)
	i.configureHost("nftables", fmt.Sprintf("addresses = [%q, %q]", island1, island16), "")
	i.startReady()
	i.waitFor(longTimeout, i.hasOwnRoutes(islandRoutes...))
	for n, lost := range []string{"10.97.0.0/24", "2001:db8:51::72"} {
		i.onNode("ip", "route", "del", lost)
		took := i.waitFor(longTimeout, i.hasOwnRoutes(islandRoutes...))
		t.Logf("the route to %s is back after %.0f ms", lost, took.Seconds()*1000)
		i.waitFor(longTimeout, func() error {
			s, err := i.status()
			if err == nil && s.repairs() != n+1 {
				err = fmt.Errorf("edgeway status counts %d repairs, want %d", s.repairs(), n+1)
			}
			return err
		})
	}
	i.must(i.hostReaches("10.97.0.2:80", "far2")())

	i.onNode("ip", "route", "add", "default", "via", "192.0.2.1")
	i.waitFor(longTimeout, i.hasOwnRoutes(islandRoutes[3:]...))
	i.onNode("ip", "route", "del", "default")
	i.waitFor(longTimeout, i.hasOwnRoutes(islandRoutes...))
	i.waitFor(longTimeout, i.hostReaches("10.97.0.2:80", "far2"))

	i.configureHost("nftables", fmt.Sprintf("addresses = [%q, %q]", island1, island16),
		"[routes]\nservices = \"never\"\n")
	i.reload()
	i.waitFor(longTimeout, i.hasOwnRoutes())
	i.configureHost("nftables", fmt.Sprintf("addresses = [%q, %q]", island1, island16),
		"[routes]\nservices = \"always\"\n")
	i.onNode("ip", "route", "add", "default", "via", "192.0.2.1")
	i.reload()
	i.waitFor(longTimeout, i.hasOwnRoutes("10.97.0.0/24", "2001:db8:51::71", "2001:db8:51::72", "fd00:97::/112"))
}

func (i *dualHomedHost) reload() {
	i.t.Helper()
	if out, errs, code := i.edgeway("reload"); code != 0 {
		i.t.Fatalf("edgeway reload ended with %d: %s%s", code, out, errs)
	}
}
