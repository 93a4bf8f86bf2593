package ebpf

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// A connection from the host reaches an endpoint without nftables rules, and getpeername returns the Service's address.
func TestSocketsNeedNoRules(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	for _, f := range both {
		if out, err := exec.Command("nft", "delete", "table",
			map[plan.Family]string{plan.IPv4: "ip", plan.IPv6: "ip6"}[f], tableName).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, f := range both {
		for _, network := range []string{"tcp", "udp"} {
			met := map[string]bool{}
			const n = 60 // the probability that all connections reach the same endpoint is 1 in 2^59
			w.wantShortcut(n, network, func() {
				for range n {
					met[w.ask(network, vip(f, 1))] = true
				}
			})
			if len(met) != len(w.endpoints) {
				t.Errorf("%s, %s: met %v", f, network, met)
			}
		}
	}
}

// IPv6 sockets with IPv4-mapped addresses, sockets that send before the connection is established
// (TCP_FASTOPEN_CONNECT), and MPTCP sockets use the shortcut.
func TestUnusualSockets(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints[0]))
	mapped := netip.AddrPortFrom(netip.AddrFrom16(vip(plan.IPv4, 1).Addr().As16()), servicePort)
	for name, c := range map[string]struct {
		family, kind, protocol int
		to                     netip.AddrPort
		option                 func(fd int) error
	}{
		"TCP to a mapped address": {family: unix.AF_INET6, kind: unix.SOCK_STREAM, to: mapped},
		"UDP to a mapped address": {family: unix.AF_INET6, kind: unix.SOCK_DGRAM, to: mapped},
		"MPTCP":                   {family: unix.AF_INET, kind: unix.SOCK_STREAM, protocol: unix.IPPROTO_MPTCP, to: vip(plan.IPv4, 1)},
		"MPTCP over IPv6":         {family: unix.AF_INET6, kind: unix.SOCK_STREAM, protocol: unix.IPPROTO_MPTCP, to: vip(plan.IPv6, 1)},
		"fast open": {family: unix.AF_INET, kind: unix.SOCK_STREAM, to: vip(plan.IPv4, 1), option: func(fd int) error {
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.Socket(c.family, c.kind|unix.SOCK_CLOEXEC, c.protocol)
			if errors.Is(err, unix.EPROTONOSUPPORT) {
				t.Skip("the kernel has no MPTCP")
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Close(fd) }()
			if c.option != nil {
				if err := c.option(fd); err != nil {
					t.Fatal(err)
				}
			}
			w.wantShortcut(1, name, func() {
				if err := unix.Connect(fd, sockaddr(c.to)); err != nil {
					t.Fatal(err)
				}
				if _, err := unix.Write(fd, []byte("who?\n")); err != nil {
					t.Fatal(err)
				}
			})
			buf := make([]byte, 100)
			if _, err := unix.Read(fd, buf); err != nil || string(buf[:4]) != "one " {
				t.Errorf("answer %q: %v", buf, err)
			}
			if peer, err := unix.Getpeername(fd); err != nil || c.protocol != unix.IPPROTO_MPTCP &&
				addrPortOf(peer) != c.to {
				t.Errorf("it is told that it has %v, not %s: %v", peer, c.to, err)
			}
		})
	}
}

// For each Service, an unconnected UDP socket keeps using the same endpoint. A response comes from the address to which
// the socket sent the request.
func TestDatagramsToSeveralServices(t *testing.T) {
	w := newWorld(t)
	for _, f := range both {
		w.apply(w.service(1, w.endpoints...), w.service(2, w.endpoints...), w.service(3, w.endpoints...))
		pc, err := net.ListenPacket("udp", "")
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		had := map[netip.AddrPort]string{}
		for round := range 20 {
			for n := 1; n <= 3; n++ {
				server, from, err := askFrom(pc, vip(f, n))
				if err != nil || from != vip(f, n) {
					t.Fatalf("%s, round %d: the answer of %s came from %s: %v", f, round, vip(f, n), from, err)
				}
				if before := had[from]; before != "" && before != server {
					t.Errorf("%s: %s and then %s answered for %s", f, before, server, from)
				}
				had[from] = server
			}
		}
		// An endpoint that receives no new connections keeps its existing connections.
		leaving := w.service(1, w.endpoints...)
		for _, svc := range leaving {
			svc.Pools[0] = svc.Pools[0][:1]
			if had[vip(f, 1)] == "one" {
				svc.Pools[0] = svc.Serving[1:]
			}
		}
		w.apply(leaving, w.service(2, w.endpoints...), w.service(3, w.endpoints...))
		if server, _, err := askFrom(pc, vip(f, 1)); server != had[vip(f, 1)] {
			t.Errorf("%s: %s took over from %s, which still serves: %v", f, server, had[vip(f, 1)], err)
		}
	}
}

func askFrom(pc net.PacketConn, to netip.AddrPort) (server string, from netip.AddrPort, err error) {
	if err := pc.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", from, err
	}
	if _, err := pc.WriteTo([]byte("who?\n"), net.UDPAddrFromAddrPort(to)); err != nil {
		return "", from, err
	}
	buf := make([]byte, 100)
	_, sender, err := pc.ReadFrom(buf)
	if err != nil {
		return "", from, err
	}
	udp, _ := sender.(*net.UDPAddr)
	a := udp.AddrPort()
	return string(buf[:3]), netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// When a Service loses an endpoint, reading from a UDP socket that is connected to the endpoint through the Service
// returns an error. Removing an endpoint affects neither TCP sockets nor UDP sockets that are not connected to a
// Service.
func TestSocketsOfRemovedEndpoints(t *testing.T) {
	w := newWorld(t)
	for _, f := range both {
		w.apply(w.service(1, w.endpoints[0]))
		open := func(network string, to netip.AddrPort) net.Conn {
			c, err := net.Dial(network, to.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := answer(c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		direct := netip.AddrPortFrom(w.endpoints[0].Addr(vip(f, 1).Addr()), endpointPort)
		udp, tcp, own := open("udp", vip(f, 1)), open("tcp", vip(f, 1)), open("udp", direct)
		w.apply(w.service(1, w.endpoints[1]))
		if server, err := answer(udp); err == nil {
			t.Errorf("%s: a UDP socket still speaks with %s, which is gone", f, server)
		}
		for name, c := range map[string]net.Conn{"TCP": tcp, "a socket that needed no Service": own} {
			if _, err := answer(c); err != nil {
				t.Errorf("%s: %s was cut: %v", f, name, err)
			}
		}
		if server := w.ask("udp", vip(f, 1)); server != "two" {
			t.Errorf("%s: a new socket speaks with %s", f, server)
		}
	}
}

// Sockets in the host's network namespace use the shortcut, but sockets in other network namespaces do not.
func TestOtherNamespacesAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.wantShortcut(0, "another network namespace", func() {
		for _, f := range both {
			for _, p := range []plan.Protocol{plan.TCP, plan.UDP} {
				to := vip(f, 1)
				if o := w.other.Connect(netlab.Flow{
					Protocol: p, From: w.other.Addr(to.Addr()), To: to,
					Wait: patience,
				}); o.Result != netlab.Served {
					t.Errorf("%s to %s: %s", p, to, o)
				}
			}
		}
	})
	// A container also has its own mount, cgroup and PID namespaces.
	w.wantShortcut(0, "a container", func() {
		cmd := w.other.Command(t.Context(), "unshare", "--mount", "--cgroup", "--pid", "--fork", "bash", "-c",
			"exec 3<>/dev/tcp/10.96.0.1/80; echo who? >&3; read -t 20 line <&3; echo $line")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) < 4 {
			t.Errorf("%v: %s", err, out)
		}
	})
	// A container in the host's network namespace also uses the shortcut.
	w.wantShortcut(1, "a container in the host's network", func() {
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--cgroup", "--pid", "--fork", "bash", "-c",
			"exec 3<>/dev/tcp/10.96.0.1/80; echo who? >&3; read -t 20 line <&3; echo $line")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) < 4 {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// The BPF programs ignore the daemon's own connections, and nftables forwards connections from sockets that are bound
// to an address or a device.
func TestSocketsLeftToNftables(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	own := net.Dialer{Control: control(func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(proxiers.OwnMark(w.env.MasqueradeBit)))
	}), Timeout: time.Second}
	w.wantShortcut(0, "the daemon's own", func() {
		if c, err := own.Dial("tcp4", vip(plan.IPv4, 1).String()); err == nil {
			t.Error("the daemon's own connection was sent to an endpoint")
			_ = c.Close()
		}
	})
	for name, d := range map[string]net.Dialer{
		"bound": {LocalAddr: &net.TCPAddr{IP: netlab.NodeAddr4.AsSlice()}},
		"bound to a device": {Control: control(func(fd int) error {
			return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "eth0")
		}), Timeout: time.Second},
	} {
		before, wasLeft := w.connectionCounts()
		c, err := d.Dial("tcp4", vip(plan.IPv4, 1).String())
		if err == nil {
			_, err = answer(c)
			_ = c.Close()
		}
		if err != nil && name == "bound" {
			t.Errorf("%s: %v", name, err)
		}
		if now, left := w.connectionCounts(); now != before || left != wasLeft+1 {
			t.Errorf("%s: it was not left to nftables", name)
		}
	}
}

func control(set func(fd int) error) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = set(int(fd)) })
		return errors.Join(failed, err)
	}
}

func TestSelfTestFailsWithoutPrograms(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	for _, f := range both {
		if err := selfTest(f); err != nil {
			t.Error(err)
		}
	}
	w.stop()
	if err := cleanup(context.Background(), w.dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range both {
		if selfTest(f) == nil {
			t.Errorf("%s: it succeeds", f)
		}
	}
}

func TestPathExplanation(t *testing.T) {
	w := newWorld(t)
	sticky, guarded := w.service(2, w.endpoints...), w.service(3, w.endpoints...)
	for _, svc := range sticky {
		svc.Affinity = time.Hour
	}
	for _, svc := range guarded {
		svc.Frontends[0].AllowFrom = []netip.Prefix{netip.PrefixFrom(vip(svc.Family, 0).Addr(), 0).Masked()}
	}
	w.apply(w.service(1, w.endpoints...), sticky, guarded)
	for n, c := range map[int]struct {
		sent uint64
		way  string
	}{1: {1, "by socket"}, 2: {0, "session affinity"}, 3: {0, "source ranges"}} {
		w.wantShortcut(c.sent, c.way, func() { w.ask("tcp", vip(plan.IPv4, n)) })
		d := w.plan.Decide(plan.Packet{Protocol: plan.TCP, Src: netlab.NodeAddr4, Dst: vip(plan.IPv4, n)})
		if got := w.proxier.explainPath(d, false); !strings.Contains(got, c.way) {
			t.Errorf("Service %d: %q", n, got)
		}
	}
	want := []string{
		"33 % (1) of the connections to Services used the BPF programs",
		"connections through the nftables rules (session affinity): 1",
		"connections through the nftables rules (source ranges): 1",
	}
	if got := w.proxier.Summary(); !slices.Equal(got, want) || w.proxier.Faults() != nil {
		t.Errorf("summary %q, faults %v", got, w.proxier.Faults())
	}
}
