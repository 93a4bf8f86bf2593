package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"edgeway/test/nameserver"
	"edgeway/test/netlab"
)

// dnsAddr is a name server's address. stubAddr is the address of a stub resolver on the node, which queries the name
// server at dnsAddr. attackerAddr is the address of a tenant's endpoint.
const (
	dnsAddr      = "198.51.100.53"
	stubAddr     = "127.0.0.53"
	attackerAddr = "10.244.3.13"
)

// cutOffLimit is the time limit for a host to receive a change after its connections to the API server break.
const cutOffLimit = 10 * time.Second

// newDNSDaemon returns a daemon that uses the given resolver to resolve the API server's host name. A resolver at
// stubAddr queries the name server at dnsAddr.
func (l *lab) newDNSDaemon(resolver string) (*daemon, *nameserver.Server) {
	l.t.Helper()
	d := l.newRemoteDaemon(false)
	l.must(os.WriteFile(d.hosts, nil, 0o600))
	d.resolv = filepath.Join(d.dir, "resolv.conf")
	l.must(os.WriteFile(d.resolv, fmt.Appendf(nil, "nameserver %s\noptions timeout:1\n", resolver), 0o600))
	names := l.names(l.net.Host("dns", netip.MustParseAddr(dnsAddr)), dnsAddr, 53)
	names.Set(apiName, netip.MustParseAddr(apiAddr))
	if resolver == stubAddr {
		udp, tcp := l.listen(l.node, stubAddr, 53)
		go nameserver.Forward(udp, tcp, func(network string) (conn net.Conn, err error) {
			err = l.node.Do(func() error {
				conn, err = net.DialTimeout(network, at(dnsAddr, 53), longTimeout)
				return err
			})
			return conn, err
		})
	}
	return d, names
}

func (l *lab) names(h *netlab.Host, addr string, port int) *nameserver.Server {
	l.t.Helper()
	udp, tcp := l.listen(h, addr, port)
	s := new(nameserver.Server)
	go s.Serve(udp, tcp)
	return s
}

func (l *lab) listen(h *netlab.Host, addr string, port int) (udp net.PacketConn, tcp net.Listener) {
	l.t.Helper()
	l.must(h.Do(func() (err error) {
		if udp, err = net.ListenPacket("udp", at(addr, port)); err != nil {
			return err
		}
		tcp, err = net.Listen("tcp", at(addr, port))
		return err
	}))
	l.t.Cleanup(func() { udp.Close(); tcp.Close() })
	return udp, tcp
}

// startAttacker starts a name server at a tenant's endpoint. The name server resolves the API server's host name to the
// endpoint's address. A server at the endpoint's address accepts TCP connections on the given port but never responds.
func (l *lab) startAttacker(port int) *nameserver.Server {
	l.t.Helper()
	h := l.net.Host("attacker", netip.MustParseAddr(attackerAddr))
	lies := l.names(h, attackerAddr, endpointPort)
	lies.Set(apiName, netip.MustParseAddr(attackerAddr))
	_, tcp := l.listen(h, attackerAddr, port)
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			l.t.Cleanup(func() { conn.Close() })
		}
	}()
	return lies
}

// createNameServerService creates a Service that has the name server's address and the attacker's endpoint.
func (n *namespace) createNameServerService() {
	n.t.Helper()
	n.createService("thief", func(s *corev1.ServiceSpec) {
		s.ExternalIPs, s.Ports[0].Port = []string{dnsAddr}, 53
	})
	n.setEndpoints("thief", attackerAddr)
}

// serverResolves returns an error unless a name server resolves the API server's host name to the wanted address.
func (l *lab) serverResolves(server, want string) func() error {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		err = l.node.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, at(server, 53))
			return err
		})
		return conn, err
	}}
	return func() error {
		found, err := r.LookupHost(l.t.Context(), apiName)
		if err == nil && !slices.Equal(found, []string{want}) {
			err = fmt.Errorf("%s says %s", server, found)
		}
		return err
	}
}

// cutOff breaks the daemon's connections to the API server, and fails the test unless a subsequent change takes effect
// in time.
func (n *namespace) cutOff(d *daemon, nodePort, ep, addr string) {
	n.t.Helper()
	limit := n.extendLimit(cutOffLimit)
	d.link.cut()
	d.link.restore()
	n.setEndpoints("shop", addr)
	took := n.waitFor(limit, answers(n.client, nodePort, ep))
	n.t.Logf("a change arrived %.1f s after the connections broke", took.Seconds())
}

// restart restarts the daemon, which loads its last-known state, and fails the test unless a change that the daemon
// missed takes effect in time.
func (n *namespace) restart(d *daemon, nodePort, ep, addr string) {
	n.t.Helper()
	limit := n.extendLimit(cutOffLimit)
	d.stop()
	n.setEndpoints("shop", addr)
	d.start()
	took := n.waitFor(limit, answers(n.client, nodePort, ep))
	n.t.Logf("a change arrived %.1f s after the start", took.Seconds())
}

// A stub resolver on the host queries a name server, and a tenant's Service has the name server's address. The
// Service's endpoint resolves the API server's host name to a false address. The daemon must still reach the API
// server, even after the daemon restarts from a last-known state that contains the tenant's Service. After the tenant
// deletes the Service, the stub resolver's queries must reach the name server again.
func TestServiceWithAddressOfStubNameServer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d, _ := l.newDNSDaemon(stubAddr)
	lies := l.startAttacker(d.link.port())
	n := l.newNamespace()
	d.watchOnly(n)
	d.startReady()
	_, nodePort := n.createWeb("shop")
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	n.createNameServerService()
	l.waitFor(longTimeout, l.serverResolves(stubAddr, attackerAddr))

	asked := lies.Queries.Load()
	n.cutOff(d, nodePort, "ep2", ep2Addr)
	if lies.Queries.Load() == asked {
		t.Error("the daemon has not heard the lie")
	}
	l.must(d.logged("using a previous address", apiAddr)())
	l.waitFor(longTimeout, d.hasStored("thief"))
	n.restart(d, nodePort, "ep1", ep1Addr)
	l.must(l.serverResolves(stubAddr, attackerAddr)())

	n.remove("thief")
	l.waitFor(longTimeout, l.serverResolves(stubAddr, apiAddr))
	n.cutOff(d, nodePort, "ep2", ep2Addr)
	l.waitFor(longTimeout, d.logged("name resolves to the API server again"))
}

func TestServiceCannotTakeNameServer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d, _ := l.newDNSDaemon(dnsAddr)
	lies := l.startAttacker(d.link.port())
	n := l.newNamespace()
	d.watchOnly(n)
	d.startReady()
	_, nodePort := n.createWeb("shop")
	n.createNameServerService()
	l.waitFor(longTimeout, d.statusPrints("thief: spec.externalIPs: "+dnsAddr+" "))
	l.must(l.serverResolves(dnsAddr, apiAddr)())
	n.cutOff(d, nodePort, "ep2", ep2Addr)
	n.restart(d, nodePort, "ep1", ep1Addr)
	if asked := lies.Queries.Load(); asked > 0 {
		t.Errorf("%d questions went to the tenant", asked)
	}
}

// A name server that returns false addresses must neither remove a ClusterIP from the host nor cut the host off from
// its API server.
func TestFalseDNSAnswers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d, names := l.newDNSDaemon(dnsAddr)
	l.startAttacker(d.link.port())
	n := l.newNamespace()
	d.watchOnly(n)
	d.startReady()
	clusterIP, nodePort := n.createWeb("shop")
	l.waitFor(longTimeout, answers(l.node, clusterIP, "ep1"))
	names.Set(apiName, netip.MustParseAddr(attackerAddr), netip.MustParseAddrPort(clusterIP).Addr())

	unharmed := func() {
		t.Helper()
		l.mustStay(time.Second, func() error {
			s, err := d.status()
			if err == nil && len(s.Problems.First) > 0 {
				err = fmt.Errorf("problems: %s", s.Problems)
			}
			return err
		})
	}
	n.cutOff(d, nodePort, "ep2", ep2Addr)
	l.must(answers(l.node, clusterIP, "ep2")())
	unharmed()
	n.restart(d, nodePort, "ep1", ep1Addr)
	l.must(answers(l.node, clusterIP, "ep1")())
	unharmed()

	names.Set(apiName, netip.MustParseAddr(apiAddr))
	n.cutOff(d, nodePort, "ep2", ep2Addr)
	l.waitFor(longTimeout, d.logged("name resolves to the API server again"))
}
