package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiAddr is the API server's address in these tests. apiRange is a ServiceCIDR that contains apiAddr but no other
// address of the lab.
const (
	apiAddr  = "198.51.100.60"
	apiName  = "api.edgeway.test"
	apiRange = "198.51.100.56/29"
)

// newRemoteDaemon returns a daemon that connects by host name to the API server, or to a proxy in front of the API
// server.
func (l *lab) newRemoteDaemon(proxy bool) *daemon {
	l.t.Helper()
	d := l.newDaemon()
	d.link = newLinkFrom(l, l.net.Host("api", netip.MustParseAddr(apiAddr)))
	d.link.name, d.link.proxy = apiName, proxy
	d.hosts = filepath.Join(d.dir, "hosts")
	d.setServerAddrs(apiAddr)
	d.configure("")
	return d
}

// setServerAddrs sets the addresses to which the API server's host name resolves. Without addresses, the host name does
// not resolve.
func (d *daemon) setServerAddrs(addrs ...string) {
	d.t.Helper()
	var text strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&text, "%s %s\n", a, apiName)
	}
	d.must(os.WriteFile(d.hosts, []byte(text.String()), 0o600))
}

// createConflicts creates a ServiceCIDR that contains the API server's address, and Services that claim this address
// and the API server's port in every way that the API allows. The returned function deletes the Services and the
// ServiceCIDR.
func (n *namespace) createConflicts(port int) (remove func()) {
	n.t.Helper()
	cidrs := sharedState.admin.Networking.ServiceCIDRs()
	_, err := cidrs.Create(n.t.Context(), &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "around"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{apiRange}},
	}, metav1.CreateOptions{})
	n.must(err)
	n.t.Cleanup(func() { _ = cidrs.Delete(cleanupContext(), "around", metav1.DeleteOptions{}) })
	names := []string{"by-external-ip", "by-load-balancer", "by-cluster-ip"}
	for _, name := range names {
		n.waitFor(longTimeout, func() error { // the API server needs some time to accept the new range
			svc, err := n.tryService(name, func(s *corev1.ServiceSpec) {
				s.Ports[0].Port = int32(port)
				switch name {
				case names[0]:
					s.ExternalIPs = []string{apiAddr}
				case names[1]:
					s.Type = corev1.ServiceTypeLoadBalancer
				default:
					s.ClusterIP = apiAddr
				}
			})
			switch {
			case err == nil && name == names[1]:
				n.setLoadBalancer(svc, apiAddr)
			case err != nil && name == names[2]: // kube-apiserver v1.36 may keep a deleted address for minutes
				_ = sharedState.admin.Networking.IPAddresses().Delete(n.t.Context(), apiAddr, metav1.DeleteOptions{})
			}
			return err
		})
		n.setEndpoints(name, ep1Addr)
	}
	return func() {
		for _, name := range names {
			n.remove(name)
		}
		n.must(cidrs.Delete(n.t.Context(), "around", metav1.DeleteOptions{}))
	}
}

func (n *namespace) follows(nodePort string) {
	n.t.Helper()
	for name, addr := range map[string]string{"ep1": ep1Addr, "ep2": ep2Addr} {
		n.setEndpoints("shop", addr)
		n.waitFor(longTimeout, answers(n.client, nodePort, name))
	}
}

// A tenant's Services have the API server's address, and a ServiceCIDR contains this address. After a reload, which
// replaces all connections to the API server, the host must still reach the API server. The host must also reach the
// API server after a restart from the last-known state, when no name server can resolve the host name. After the tenant
// removes the Services, the status must report no fault.
func TestServicesCannotTakeAPIServerAddress(t *testing.T) {
	for what, proxy := range map[string]bool{"by name": false, "by a proxy": true} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t)
			d := l.newRemoteDaemon(proxy)
			n := l.newNamespace()
			_, nodePort := n.createWeb("shop")
			remove := n.createConflicts(d.link.port())
			d.startReady()
			faults := []string{
				"by-external-ip: spec.externalIPs: " + apiAddr + " ",
				"by-load-balancer: status.loadBalancer.ingress: " + apiAddr + " ",
				"by-cluster-ip: spec.clusterIPs: " + apiAddr + " ",
				"ServiceCIDR around: spec.cidrs: " + apiRange + " ",
			}
			l.waitFor(longTimeout, d.statusPrints(faults...))
			if out, errs, code := d.edgeway("run", "--dry-run"); code != 1 || !containsAll(out, faults) {
				t.Errorf("the dry run, which ended with %d, does not say the same:\n%s%s", code, out, errs)
			}
			n.follows(nodePort)
			l.must(d.usesMark())

			d.link.cut()
			d.signal(syscall.SIGHUP)
			l.waitFor(longTimeout, d.logged("configuration reloaded"))
			d.link.restore()
			n.follows(nodePort)
			l.must(d.usesMark())

			l.waitFor(longTimeout, d.hasStored(apiAddr))
			d.stop()
			d.setServerAddrs()
			d.startReady()
			l.waitFor(longTimeout, d.logged("using a previous address", apiAddr))
			l.waitFor(longTimeout, d.statusPrints(faults...))
			n.follows(nodePort)

			remove()
			l.waitFor(longTimeout, func() error {
				s, err := d.status()
				if err == nil && containsAny(s.Problems.String(), faults) {
					err = fmt.Errorf("edgeway status still says %q", s.Problems.First)
				}
				return err
			})
		})
	}
}

// The API server's host name starts to resolve to an address that a tenant's Service owns. The daemon must connect to
// the API server at the tenant's address, and the tenant must lose the address once the API server has proved its
// identity.
func TestAPIServerMovesToServiceAddress(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newRemoteDaemon(false)
	const moved = "198.51.100.61"
	host := l.net.Host("moved", netip.MustParseAddr(moved)) // no program listens on this host
	d.startReady()
	n := l.newNamespace()
	_, nodePort := n.createWeb("shop")
	n.createService("thief", func(s *corev1.ServiceSpec) {
		s.ExternalIPs, s.Ports[0].Port = []string{moved}, int32(d.link.port())
	})
	n.setEndpoints("thief", ep1Addr)
	thief := at(moved, d.link.port())
	l.waitFor(longTimeout, answers(l.client, thief, "ep1"))

	d.setServerAddrs(moved)
	d.link.cut()
	l.waitFor(longTimeout, d.logged("fault began", "fault=source-kube", "connection refused"))
	if err := d.logged("fault=source-kube", "tls:")(); err == nil {
		t.Error("the daemon was sent to the tenant's endpoint")
	}
	l.must(answers(l.client, thief, "ep1")())
	newLinkAt(l, host, d.link.port())
	n.follows(nodePort)
	l.waitFor(longTimeout, d.statusPrints("thief: spec.externalIPs: "+moved+" "))
}

// usesMark returns an error unless all of the daemon's connections to the API server have the daemon's packet mark.
func (d *daemon) usesMark() error {
	out := d.onNode("ss", "--tcp", "--no-header", "--extended", "state", "established", "dst", apiAddr)
	if lines := strings.Count(out, "\n"); lines == 0 || strings.Count(out, "fwmark:0x1000") != lines {
		return fmt.Errorf("connections without the mark:\n%s", out)
	}
	return nil
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

func containsAny(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
