package ipvs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

const nodeAddr = "192.0.2.10"

// shop is a Service that must work despite the faults that the tests cause.
var shop = service{name: "shop", clusterIP: "10.96.0.10", nodePort: 30080, pods: []int{0, 1, 2}}

// verifyShop returns an error unless all clients get a response from the Service shop.
func (s *site) verifyShop() error {
	return errors.Join(
		expectResponse(s.client, at(shop.clusterIP, 80), plan.TCP)(),
		expectResponse(s.client, at(nodeAddr, shop.nodePort), plan.TCP)(),
		expectResponse(s.node, at(shop.clusterIP, 80), plan.TCP)(),
		expectResponse(s.client, at(shop.clusterIP, 53), plan.UDP)(),
	)
}

func running(t *testing.T, more ...service) *site {
	t.Helper()
	s := newSite(t)
	s.onNode("modprobe", "ip_vs")
	s.configure("ipvs", "")
	for _, svc := range append(more, shop) {
		s.write(svc)
	}
	s.start()
	s.waitFor(changeTimeout, s.verifyShop)
	return s
}

// servers returns the node's virtual servers with their endpoints, as sorted ipvsadm commands.
func (s *site) servers() []string {
	s.Helper()
	lines := strings.Split(strings.TrimSpace(s.onNode("ipvsadm", "--save", "--numeric")), "\n")
	slices.Sort(lines)
	return lines
}

// Edgeway does not change other programs' virtual servers. If another program has a virtual server at an address that
// Edgeway needs, the status must name this virtual server.
func TestForeignServer(t *testing.T) {
	s := newSite(t)
	s.onNode("modprobe", "ip_vs")
	taken := service{name: "taken", clusterIP: "10.96.0.20", pods: []int{0}}
	for _, server := range []string{"10.96.0.20:10080", "192.0.2.10:7777", "198.51.100.1:80"} {
		s.onNode("ipvsadm", "-A", "-t", server, "-s", "wlc", "-p", "600")
		s.onNode("ipvsadm", "-a", "-t", server, "-r", "10.9.9.9:99", "-m", "-w", "7")
	}
	foreign := s.servers()
	s.configure("ipvs", "")
	s.write(shop)
	s.write(taken)
	s.start()
	s.waitFor(changeTimeout, s.verifyShop)
	named := func() error {
		st, err := s.status()
		if err == nil && !slices.ContainsFunc(st.Quarantined, func(q quarantined) bool {
			return q.Name == "default/taken:a/TCP" &&
				strings.Contains(q.Error, "another program has a virtual server at this address")
		}) {
			err = fmt.Errorf("quarantined are %q", st.Quarantined)
		}
		return err
	}
	s.waitFor(changeTimeout, named)
	s.must(expectResponse(s.client, at(taken.clusterIP, 53), plan.UDP)()) // the other program does not use this port
	untouched := func() {
		t.Helper()
		for _, line := range foreign {
			if !slices.Contains(s.servers(), line) {
				t.Errorf("%q of another program is gone", line)
			}
		}
	}
	untouched()
	s.onNode("ipvsadm", "-D", "-t", "10.96.0.20:10080")
	foreign = slices.DeleteFunc(foreign, func(line string) bool { return strings.Contains(line, "10.96.0.20") })
	taken.pods = []int{1} // the daemon retries a Service that has changed
	s.write(taken)
	s.waitFor(changeTimeout, expectResponse(s.client, at(taken.clusterIP, 80), plan.TCP))
	s.end()
	if out, code := s.edgeway("cleanup"); code != 0 {
		t.Errorf("cleanup: %s", out)
	}
	untouched()
	if left := s.servers(); !slices.Equal(left, foreign) {
		t.Errorf("after cleanup there are %q, want those of others: %q", left, foreign)
	}
}

// A Service must not take over the address of a host on which the node depends, such as the node's gateway.
func TestDangerousAddress(t *testing.T) {
	s := newSite(t)
	s.onNode("modprobe", "ip_vs")
	const gateway, neighbour, apiServer = "192.0.2.1", "192.0.2.77", "192.0.2.50"
	s.onNode("ip", "neighbour", "add", neighbour, "lladdr", "02:00:00:00:00:77", "dev", "eth0", "nud", "permanent")
	s.must(writeKubeconfig(s, apiServer))
	s.configure("ipvs", fmt.Sprintf("[source.kube]\nkubeconfig = %q\n", s.file("kubeconfig")))
	dangerous := map[string]string{
		"gateway": gateway, "neighbour": neighbour, "api-server": apiServer, "host-itself": nodeAddr,
	}
	for name, address := range dangerous {
		s.write(service{name: name, clusterIP: address, pods: []int{0}})
	}
	s.write(shop)
	s.start()
	s.waitFor(changeTimeout, s.verifyShop)
	says := map[string]string{
		"gateway":     gateway + " is a default gateway of this host",
		"neighbour":   neighbour + " is the address of a neighbour of this host",
		"api-server":  apiServer + " is the API server's address",
		"host-itself": nodeAddr + " is an address of this host",
	}
	s.waitFor(changeTimeout, func() error {
		st, err := s.status()
		var all []string
		for _, q := range st.Quarantined {
			all = append(all, q.Name+": "+q.Error)
		}
		for _, f := range st.Problems.First {
			all = append(all, f.String())
		}
		for name, words := range says {
			if err == nil && !slices.ContainsFunc(all,
				func(p string) bool { return strings.Contains(p, "default/"+name) && strings.Contains(p, words) }) {
				err = fmt.Errorf("nothing says of %s %q: %q", name, words, all)
			}
		}
		return err
	})
	for name, address := range dangerous {
		if routes := s.onNode("ip", "route", "show", "table", "237"); strings.Contains(routes, " "+address+" ") {
			t.Errorf("%s: there is a route:\n%s", name, routes)
		}
		if i := slices.IndexFunc(s.servers(), func(line string) bool {
			return strings.Contains(line,
				"-t "+address+":")
		}); i >= 0 {
			t.Errorf("%s: there is a virtual server: %s", name, s.servers()[i])
		}
	}
	s.must(s.verifyShop())
}

// Connections must not fail when another program adds or removes an interface that has all Service addresses.
// kube-proxy, for example, leaves an interface with Service addresses behind.
func TestInterfaceWithServiceAddresses(t *testing.T) {
	s := running(t, service{name: "lb", clusterIP: "10.96.0.11", nodePort: 30081, pods: []int{1}})
	clients := startLoad(
		expectResponse(s.client, at(shop.clusterIP, 80), plan.TCP),
		expectResponse(s.node, at(shop.clusterIP, 80), plan.TCP),
		expectResponse(s.client, at(nodeAddr, 30081), plan.TCP),
		expectResponse(s.client, at("10.96.0.11", 53), plan.UDP),
	)
	for _, step := range [][]string{
		{"link", "add", "kube-ipvs0", "type", "dummy"},
		{"address", "add", shop.clusterIP + "/32", "dev", "kube-ipvs0"},
		{"address", "add", "10.96.0.11/32", "dev", "kube-ipvs0"},
		{"link", "set", "kube-ipvs0", "up"},
		{"link", "set", "kube-ipvs0", "down"},
		{"link", "set", "kube-ipvs0", "up"},
		{"address", "delete", "10.96.0.11/32", "dev", "kube-ipvs0"},
		{"link", "delete", "kube-ipvs0"},
	} {
		s.onNode("ip", step...)
		count, failures := clients.resultsAfter(1500*time.Millisecond, 20)
		if len(failures) > 0 || count < 20 {
			t.Errorf("ip %s: %d connections of %d failed: %q", strings.Join(step, " "), len(failures), count,
				failures[:min(len(failures), 3)])
		}
		s.must(s.expectBackend("ipvs")())
		if st, err := s.status(); err != nil || len(st.Problems.First)+len(st.Quarantined) > 0 {
			t.Errorf("ip %s: problems %v, %q, %v", strings.Join(step, " "), st.Problems.First, st.Quarantined, err)
		}
	}
	clients.end() // waits for the connections that are still without a response
	if _, failures := clients.newResults(); len(failures) > 0 {
		t.Errorf("%d connections failed later: %q", len(failures), failures[:min(len(failures), 3)])
	}
}

// The daemon must restore virtual servers that another program removed, although the kernel sends no event about the
// removal.
func TestServersCleared(t *testing.T) {
	s := running(t)
	want := s.servers()
	// TCP sends a dropped SYN again only after one second, and then after two. This client opens another connection.
	request := expectServed(s.client, netlab.Flow{
		Protocol: plan.TCP, From: s.client.Addrs[0], To: at(shop.clusterIP, 80),
		Wait: 200 * time.Millisecond, ReplyWait: hangTimeout,
	})
	var times []time.Duration
	for i := range 5 {
		// The sleep spreads the removals over the daemon's poll interval of one second.
		time.Sleep(time.Duration(i) * 230 * time.Millisecond)
		s.onNode("ipvsadm", "-C")
		times = append(times, s.waitFor(changeTimeout, request))
		s.waitFor(changeTimeout, func() error {
			if have := s.servers(); !slices.Equal(have, want) {
				return fmt.Errorf("virtual servers %q, want %q", have, want)
			}
			return nil
		})
	}
	slices.Sort(times)
	t.Logf("after ipvsadm -C, a connection was answered after %v", times)
	// The emulated machine may have waited for a CPU once, so the longest time does not count.
	if times[3] > 1500*time.Millisecond {
		t.Errorf("two of five times are more than 1.5 s")
	}
}
