package inside

import (
	"fmt"
	"net/netip"
	"strings"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// routesByTimer tests that the timer adds the routes in the recipe's file, restores a deleted route, and deletes routes
// that are no longer in the file. If the file is unusable, the unit must fail and delete nothing.
func routesByTimer(h *host) {
	const file, service, unit = "/etc/edgeway/routes-to-pods", "10.96.0.70:80", "routes-to-pods"
	const first = "route replace 10.245.1.0/24 via 10.244.1.11 proto 210\n"
	const second = "route replace 10.245.2.0/24 via 10.244.2.12 proto 210\n"
	h.routed(h.ep1, "routed", "10.245.1.5")
	h.manifest("routed", oneEndpoint("routed", "10.96.0.70", "", "10.245.1.5"))
	h.eventually("10.96.0.70", "edgeway", "services", "default/routed")
	h.notServed(service) // the default route leads elsewhere
	h.stopAtEnd("routes-to-pods.timer")
	h.Cleanup(func() { h.try("ip", "route", "flush", "proto", "210") })

	h.write(file, first+second)
	h.followRecipe("hosts.md", "To apply the routes")
	h.becomesServed(service)
	h.run("ip", "route", "del", "10.245.1.0/24")
	h.becomesServed(service)
	h.run("systemctl", "stop", "routes-to-pods.timer")
	h.starts(unit, true)

	for what, text := range map[string]string{"empty": "", "invalid": first + "route replace  via 10.244.2.12\n"} {
		h.write(file, text)
		h.starts(unit, false)
		if out := h.run("ip", "route", "show", "proto", "210"); strings.Count(out, "via") != 2 {
			h.Errorf("routes with a file that is %s, want two:\n%s", what, out)
		}
	}
	h.write(file, first)
	h.starts(unit, true)
	if out := h.run("ip", "route", "show", "proto", "210"); strings.Count(out, "via") != 1 {
		h.Errorf("the route that is no longer in the file stays:\n%s", out)
	}
	h.verifyFromHost(service)
}

// neighbour is the configuration of a Node's BGP daemon. The Node announces a pod network and a network that the recipe
// does not allow.
const neighbour = `router id 192.0.2.1;
protocol device { }
protocol static { ipv4; route 10.244.7.0/24 blackhole; route 198.51.100.0/24 blackhole; }
protocol bgp edge {
  local 192.0.2.1 as 64512;
  neighbor 192.0.2.10 as 64512;
  connect delay time 1;
  ipv4 { import all; export all; next hop self; };
}
`

// routesByBIRD tests a host that has no default route and learns the route to an endpoint from a Node.
func routesByBIRD(h *host) {
	const service, conf = "10.96.0.80:80", "/var/tmp/neighbour.conf"
	h.routed(h.gateway, "announced", "10.244.7.5")
	h.manifest("announced", oneEndpoint("announced", "10.96.0.80", "", "10.244.7.5"))
	h.run("ip", "route", "del", "default")
	h.Cleanup(func() { h.run("ip", "route", "add", "default", "via", "192.0.2.1") })
	h.eventually("10.96.0.80", "edgeway", "services", "default/announced")
	h.notServed(service)
	h.write(conf, neighbour)
	peer := h.gateway.Command(h.Context(), "bird", "-f", "-c", conf, "-s", "/run/neighbour.ctl")
	if err := peer.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = peer.Wait() }) // the end of the test's context kills BIRD
	h.Cleanup(func() { h.try("systemctl", "stop", "bird") })

	h.followRecipe("hosts.md", "BIRD 2")
	h.becomesServed(service)
	out := h.run("ip", "route", "show", "proto", "bird")
	if h.contains(out, "10.244.7.0/24 via 192.0.2.1 "); strings.Contains(out, "198.51.100.0/24") {
		h.Errorf("a route outside of the pod networks:\n%s", out)
	}
	if err := peer.Process.Kill(); err != nil {
		h.Fatal(err)
	}
	h.waitFor(eventTimeout, func() error {
		if out := h.run("ip", "route", "show", "proto", "bird"); out != "" {
			return fmt.Errorf("routes of a Node that is gone:\n%s", out)
		}
		return nil
	})
}

// routed starts an endpoint on the given host, at an address that clients can reach only by a route via this host.
func (h *host) routed(on *netlab.Host, name, addr string) {
	h.Helper()
	if out, err := on.Command(
		h.Context(), "ip", "address", "add", addr+"/32", "dev", "lo",
	).CombinedOutput(); err != nil {
		h.Fatalf("ip address add: %v\n%s", err, out)
	}
	if err := on.Serve(name, netip.AddrPortFrom(netip.MustParseAddr(addr), 8080), plan.TCP); err != nil {
		h.Fatal(err)
	}
}
