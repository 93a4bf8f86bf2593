package ipvs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

type held struct {
	*netlab.Session
	what string
}

// openAll opens a connection from each kind of client to each kind of address.
func (s *site) openAll() (all []held) {
	s.Helper()
	for what, f := range map[string]netlab.Flow{
		"ClusterIP":              {From: s.client.Addrs[0], To: at(shop.clusterIP, 80)},
		"NodePort":               {From: s.client.Addrs[0], To: at(nodeAddr, shop.nodePort)},
		"ClusterIP for the node": {From: s.node.Addrs[0], To: at(shop.clusterIP, 80)},
		"ClusterIP for a pod":    {From: s.visitor.Addrs[0], To: at(shop.clusterIP, 80)},
	} {
		from := s.client
		switch f.From {
		case s.node.Addrs[0]:
			from = s.node
		case s.visitor.Addrs[0]:
			from = s.visitor
		}
		f.Protocol, f.Wait = plan.TCP, hangTimeout
		session, failure := from.Open(f)
		if session == nil {
			s.Fatalf("connection to the %s: %s", what, failure)
		}
		s.Cleanup(session.Close)
		all = append(all, held{session, what})
	}
	return all
}

// TestSwitch starts on a host whose kernel has not loaded the ip_vs module. The daemon must fall back to another
// backend, and the status must report the fallback. The test then switches from backend to backend. During the
// switches, new connections must succeed and open connections must survive.
func TestSwitch(t *testing.T) {
	s := newSite(t)
	if loaded() {
		t.Fatal("the module ip_vs is loaded already: this test is to be the first")
	}
	s.configure("ipvs", "")
	s.write(shop)
	s.start()
	s.waitFor(changeTimeout, s.expectBackend("iptables-nft", "fallback"))
	s.waitFor(changeTimeout, s.verifyShop)
	out, _ := s.edgeway("status")
	if !strings.Contains(out, "Edgeway uses the backend iptables-nft, because this host") ||
		!strings.Contains(out, "the ip_vs kernel module is not loaded") {
		t.Errorf("status does not say what serves, and why:\n%s", out)
	}
	if loaded() {
		t.Error("asking loaded the module")
	}
	open := s.openAll()
	clients := startLoad(
		expectResponse(s.client, at(shop.clusterIP, 80), plan.TCP),
		expectResponse(s.client, at(nodeAddr, shop.nodePort), plan.TCP),
		expectResponse(s.node, at(shop.clusterIP, 80), plan.TCP),
		expectResponse(s.visitor, at(shop.clusterIP, 80), plan.TCP),
		expectResponse(s.client, at(shop.clusterIP, 53), plan.UDP),
	)
	check := func(to string, took time.Duration, most int) {
		t.Helper()
		count, failures := clients.resultsAfter(time.Second, 100) // connections without a response need time to fail
		t.Logf("to %s in %.1f s: %d connections, %d failed %q", to, took.Seconds(), count, len(failures),
			failures[:min(len(failures), 5)])
		if len(failures) > most || count < 100 {
			t.Errorf("to %s: %d connections of %d failed, want %d at most: %q", to, len(failures), count, most,
				failures[:min(len(failures), 5)])
		}
		for _, h := range open {
			if got := h.Ask(5 * time.Second); got.Result != netlab.Served {
				t.Errorf("the open connection to the %s, after the switch to %s: %s", h.what, to, got)
			}
		}
		open = append(open, s.openAll()...) // connections through each backend must survive all later switches
	}
	// When the ipvs backend replaces iptables, the nft table takes effect immediately, but the routing rule takes
	// effect a few milliseconds later. If the routing rule took effect first, connections to other ports of Service
	// addresses would reach programs on the host. Until the routing rule takes effect, the kernel drops packets. TCP
	// and this test's UDP client send a dropped packet again after a second, so almost no connection fails.
	const between = 2
	defer func() {
		clients.end() // waits for the connections that are still without a response
		if _, failures := clients.newResults(); len(failures) > between {
			t.Errorf("%d connections failed later: %q", len(failures), failures[:min(len(failures), 5)])
		}
	}()
	s.onNode("modprobe", "ip_vs")
	s.waitFor(changeTimeout, s.reload)
	check("ipvs, as its module is there", s.waitFor(changeTimeout, s.expectBackend("ipvs")), between)
	before := "ipvs"
	for _, to := range []string{"nftables", "ipvs", "iptables-nft", "ipvs", "iptables-legacy", "ipvs"} {
		s.configure(to, "")
		s.waitFor(changeTimeout, s.reload)
		most := 0
		if to == "ipvs" && strings.HasPrefix(before, "iptables") {
			most = between
		}
		check(to, s.waitFor(changeTimeout, s.expectBackend(to)), most)
		s.verifyOnlyBackend(to)
		before = to
	}
}

// reload returns an error if `edgeway reload` fails, so that a test on a busy machine can retry.
func (s *site) reload() error {
	if out, code := s.edgeway("reload"); code != 0 {
		return errors.New(out)
	}
	return nil
}

// verifyOnlyBackend fails the test unless the kernel holds the rules or virtual servers of only the given backend.
func (s *site) verifyOnlyBackend(backend string) {
	s.Helper()
	traces := map[string]bool{
		"ipvs":            strings.Contains(s.onNode("nft", "list", "tables"), "edgeway-ipvs") || s.onNode("ipvsadm", "--save", "--numeric") != "",
		"iptables-nft":    strings.Contains(s.onNode("iptables-nft-save"), "KUBE-"),
		"iptables-legacy": strings.Contains(s.onNode("iptables-legacy-save"), "KUBE-"),
		"nftables":        strings.Contains(s.onNode("nft", "list", "tables")+"\n", "table ip edgeway\n"),
	}
	for name, has := range traces {
		if has != (name == backend) {
			s.Errorf("with the backend %s the kernel has something of %s: %v", backend, name, has)
		}
	}
}
