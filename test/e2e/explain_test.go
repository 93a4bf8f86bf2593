package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// explains returns an error unless `edgeway explain` exits with the given code and prints all of the words.
func (d *daemon) explains(src, dst string, code int, words ...string) func() error {
	return func() error {
		out, errs, got := d.edgeway("explain", "--exit-code", src, dst)
		if got != code || !containsAll(out, words) {
			return fmt.Errorf("edgeway explain %s %s: exit code %d, want %d and %q in:\n%s%s", src, dst, got, code,
				words, out, errs)
		}
		return nil
	}
}

func (d *daemon) explained(src, dst string) (e struct{ Source, Verdict, NextHop string }, err error) {
	out, errs, code := d.edgeway("explain", "--json", src, dst)
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		return e, fmt.Errorf("edgeway explain --json (code %d, %s): %w in %q", code, errs, err, out)
	}
	return e, nil
}

// On a host with two networks, the route to a load-balancer address determines the source address. Each Service accepts
// only one of the two source addresses. The explain command must predict the outcome of connections.
func TestExplainWithTwoNetworks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const second, near, far = "198.18.0.10", "203.0.113.201", "203.0.113.202"
	l.net.Host("far", netip.MustParseAddr("198.18.0.99"))
	l.onNode("ip", "addr", "add", second+"/24", "dev", "far")
	l.onNode("ip", "route", "add", far, "via", "198.18.0.99", "dev", "far", "src", second)
	d := l.newDaemon()
	d.startReady()
	n := l.newNamespace()
	for name, open := range map[string]string{"first": nodeAddr, "second": second} {
		svc := n.createService(name, func(s *corev1.ServiceSpec) {
			s.Type, s.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{open + "/32"}
			s.Ports = s.Ports[:1]
			s.Ports[0].Port = map[string]int32{"first": 81, "second": 82}[name]
		})
		n.setEndpoints(name, ep1Addr)
		n.setLoadBalancer(svc, near, far)
	}
	for _, c := range []struct {
		addr, source, device string
		port                 int
		open                 bool
	}{
		{near, nodeAddr, "eth0", 81, true},
		{near, nodeAddr, "eth0", 82, false},
		{far, second, "far", 81, false},
		{far, second, "far", 82, true},
	} {
		to := at(c.addr, c.port)
		l.waitFor(longTimeout, func() error {
			e, err := d.explained("host", to)
			if err != nil {
				return err
			}
			want := map[bool]string{true: "forward", false: "drop"}[c.open]
			if e.Source != c.source || e.Verdict != want || !strings.HasSuffix(e.NextHop, " on "+c.device) {
				return fmt.Errorf("explain host %s: %+v, want %s from %s on %s", to, e, want, c.source, c.device)
			}
			got := l.node.Connect(netlab.Flow{Protocol: plan.TCP, To: netip.MustParseAddrPort(to), Wait: dialTimeout})
			if (got.Server == "ep1") != c.open {
				return fmt.Errorf("a connection to %s: %s, but explain says %s", to, got, e.Verdict)
			}
			return nil
		})
	}
}

func TestExplainReportsCause(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	n, clusterIP, nodePort := d.shop()
	port := int(netip.MustParseAddrPort(nodePort).Port())
	shop := n.name + "/shop"
	// The daemon writes a plan's rules to the kernel shortly before it reports that the plan is in force.
	l.waitFor(longTimeout, d.explains("host", shop, 0, "forward: ", "to         "+clusterIP, ep1Addr+":8080", "on ep1"))
	l.must(d.explains(clientAddr, shop+":web", 0, "to         "+nodePort)())
	l.must(d.explains(clientAddr, at("127.0.0.1", port), 4, "drop: martian")())
	l.must(d.explains("host", at("localhost", port), 4, "pass: ", strconv.Itoa(port), shop, nodeAddr,
		"proxy.nodeport_addresses")())
	l.must(isUnanswered(l.node, at("127.0.0.1", port))())

	n.createService("idle", nil)
	l.waitFor(longTimeout, d.explains("host", n.name+"/idle:80", 4, "reject: ", "EndpointSlice", " fix: "))
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "idle", Labels: map[string]string{discoveryv1.LabelServiceName: "idle"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(endpointPort)), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ep1Addr}}},
	}
	_, err := sharedState.admin.Discovery.EndpointSlices(n.name).Create(t.Context(), slice, metav1.CreateOptions{})
	l.must(err)
	l.waitFor(longTimeout, d.explains("host", n.name+"/idle:80", 4, "reject: ", `"web"/TCP`, `"http"/TCP`))

	here := n.createService("here", func(s *corev1.ServiceSpec) {
		s.Type, s.InternalTrafficPolicy = corev1.ServiceTypeNodePort, new(corev1.ServiceInternalTrafficPolicyLocal)
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	n.endpointsOn("here", "another", ep2Addr)
	l.waitFor(longTimeout, d.explains("host", n.name+"/here:80", 4, "drop: ", `node.local_policy = "cluster"`))
	l.must(d.explains(clientAddr, at(nodeAddr, int(here.Spec.Ports[0].NodePort)), 4, "drop: ",
		`node.local_policy = "cluster"`)())
	// The host's own connections to the NodePort work. The doctor must nevertheless report that Edgeway drops other
	// hosts' connections.
	out, _, _ := d.edgeway("doctor")
	if want := "connections to " + n.name +
		"/here:web/TCP (IPv4) from other hosts and this host"; !strings.Contains(out, want) {
		t.Errorf("edgeway doctor does not say %q:\n%s", want, out)
	}

	vip := netip.MustParseAddrPort(clusterIP).Addr().String()
	l.onNode("ip", "route", "add", "unreachable", vip+"/32")
	l.must(d.explains("host", clusterIP, 4, "unreachable: ", vip, " fix: ")())
	l.must(isUnanswered(l.node, clusterIP)())
	l.must(d.explains(clientAddr, clusterIP, 0, "forward: ")()) // for forwarded packets, translation precedes routing
	l.must(answers(l.client, clusterIP, "ep1")())
	l.onNode("ip", "route", "del", "unreachable", vip+"/32")
	l.onNode("ip", "route", "replace", "unreachable", ep1Addr+"/32")
	l.must(d.explains(clientAddr, clusterIP, 4, "unreachable: ", "no route to "+ep1Addr)())
}

// If the daemon is not running, the edgeway commands must say so. The commands must also report configuration mistakes.
func TestCommandsWithoutDaemon(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	n, clusterIP, _ := d.shop()
	l.waitFor(longTimeout, d.hasStored(n.name))
	completed := func() error {
		cmd := d.node.Command(t.Context(), sharedState.binary, "__complete", "--config", d.config, "plan", n.name+"/")
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(out), n.name+"/shop\n") {
			return fmt.Errorf("completion: %q, %w", out, err)
		}
		return nil
	}
	l.must(completed())
	d.stop()
	for _, command := range [][]string{{"status"}, {"explain", "host", clusterIP}} {
		if out, errs, code := d.edgeway(command...); code != 3 || out != "" || !strings.Contains(errs, "not running") {
			t.Errorf("%s: exit code %d: %s%s", command[0], code, out, errs)
		}
	}
	d.configure("[proxy]\nnodeport_adresses = []\n")
	for _, command := range []string{"status", "reload"} {
		if _, errs, code := d.edgeway(command); code != 2 || !strings.Contains(errs, "nodeport_adresses") {
			t.Errorf("%s with an invalid configuration: exit code %d: %s", command, code, errs)
		}
	}
}
