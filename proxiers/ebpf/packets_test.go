package ebpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// tcConnections returns the number of connections that the tc program has handled so far.
func (w *world) tcConnections() uint64 {
	w.Helper()
	counts, err := w.proxier.shortcuts.counts()
	if err != nil {
		w.Fatal(err)
	}
	return counts[packetsTCP]
}

// countForTCP returns n for TCP, and 0 for UDP, because the tc program ignores UDP.
func countForTCP(network string, n uint64) uint64 { return map[string]uint64{"tcp": n}[network] }

// wantTCConnections fails the test unless the tc program handles n new connections while do is running.
func (w *world) wantTCConnections(n uint64, what string, do func()) {
	w.Helper()
	before := w.tcConnections()
	do()
	if now := w.tcConnections(); now-before != n {
		w.Errorf("%s: %d connections of other hosts took the shortcut, not %d", what, now-before, n)
	}
}

func (w *world) needsPackets() {
	w.Helper()
	if err := w.proxier.shortcuts.tcErr; err != nil {
		w.Fatalf("no tc program: %v", err)
	}
}

// dialFrom connects from h. A port of 0 means any source port.
func dialFrom(h *netlab.Host, network string, port int, to netip.AddrPort) (c net.Conn, err error) {
	d := net.Dialer{Timeout: patience, Control: control(func(fd int) error {
		return unix.SetsockoptInt(fd,
			unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})}
	d.LocalAddr = &net.TCPAddr{IP: h.Addr(to.Addr()).AsSlice(), Port: port}
	if network == "udp" {
		d.LocalAddr = &net.UDPAddr{IP: h.Addr(to.Addr()).AsSlice(), Port: port}
	}
	return c, h.Do(func() (err error) { c, err = d.Dial(network, to.String()); return err })
}

// askFrom connects from h, and returns the name of the server that responded and the client address that the server
// saw.
func (w *world) askFrom(h *netlab.Host, network string, to netip.AddrPort) (server, seen string) {
	w.Helper()
	c, err := dialFrom(h, network, 0, to)
	if err == nil {
		defer c.Close()
		server, seen, err = conversation(c)
	}
	if err != nil {
		w.Errorf("connection from %s to %s over %s: %v", h.Name, to, network, err)
	}
	return server, seen
}

func TestPacketsFromOtherHosts(t *testing.T) {
	w := newWorld(t)
	list := w.service(1, w.endpoints...)
	for _, svc := range list {
		svc.Frontends[0].Routes[plan.FromOutside].SNAT = false
	}
	w.apply(list)
	w.needsPackets()
	for _, f := range both {
		for _, network := range []string{"tcp", "udp"} {
			t.Run(fmt.Sprint(f, " ", network), func(t *testing.T) {
				const n = 40 // enough that the kernel practically always picks both endpoints
				servers := map[string]int{}
				w.wantTCConnections(countForTCP(network, n), network, func() {
					for range n {
						server, seen := w.askFrom(w.other, network, vip(f, 1))
						servers[server]++
						if want := w.other.Addr(vip(f, 1).Addr()).String(); seen != want {
							t.Errorf("the endpoint saw %s, not the client %s", seen, want)
						}
					}
				})
				if len(servers) != 2 {
					t.Errorf("who answered: %v", servers)
				}
			})
		}
	}
}

// The tc program masquerades connections to frontends that require masquerading, and connections from an endpoint to
// itself.
func TestPacketsAreMasqueraded(t *testing.T) {
	w := newWorld(t)
	list := w.service(1, w.endpoints[0])
	for _, svc := range list {
		svc.Frontends[0].Routes[plan.FromOutside].SNAT = true
		svc.Pools[0][0].Local = true
	}
	w.apply(list)
	w.needsPackets()
	for _, f := range both {
		for _, network := range []string{"tcp", "udp"} {
			for _, h := range []*netlab.Host{w.other, w.endpoints[0]} {
				w.wantTCConnections(countForTCP(network, 1), h.Name, func() {
					_, seen := w.askFrom(h, network, vip(f, 1))
					// Like nftables, the tc program uses the host's address, because the device's own address is
					// link-local.
					if want := map[plan.Family]netip.Addr{
						plan.IPv4: netlab.NodeAddr4,
						plan.IPv6: netlab.NodeAddr6,
					}[f]; seen != want.String() {
						t.Errorf("%s over %s %s: the endpoint saw %s, not %s", h.Name, f, network, seen, want)
					}
				})
			}
		}
	}
}

// Two Services share an endpoint, and a client connects to both Services concurrently from the same port.
func TestPacketsFromOnePortToSharedEndpoint(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints[0]), w.service(2, w.endpoints[0]))
	w.needsPackets()
	for _, f := range both {
		for _, network := range []string{"tcp", "udp"} {
			for port := 20000; port < 20030; port++ {
				w.wantTCConnections(countForTCP(network, 2), "one port", func() {
					for n := 1; n <= 2; n++ {
						c, err := dialFrom(w.other, network, port, vip(f, n))
						if err == nil {
							defer c.Close()
							_, _, err = conversation(c)
						}
						if err != nil {
							t.Errorf("%s %s: Service %d from port %d: %v", f, network, n, port, err)
						}
					}
				})
			}
		}
	}
}

// A client reuses the source port of a connection that one peer reset or that both peers closed.
func TestPacketsWithReusedClientPort(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	for _, f := range both {
		for _, reset := range []bool{true, false} {
			const n = 10
			w.wantTCConnections(n, "a port used again", func() {
				for range n {
					c, err := dialFrom(w.other, "tcp", 21000, vip(f, 1))
					if err == nil {
						_, _, err = conversation(c)
						if reset {
							_ = c.(*net.TCPConn).SetLinger(0)
						}
						_ = c.Close()
						time.Sleep(50 * time.Millisecond)
					}
					if err != nil {
						t.Errorf("%s, reset %v: %v", f, reset, err)
					}
				}
			})
		}
	}
}

func TestPacketsLeftToNftables(t *testing.T) {
	w := newWorld(t)
	list := w.service(1, w.endpoints[0])
	for _, svc := range list {
		svc.Affinity = time.Hour
	}
	w.apply(list)
	w.needsPackets()
	for _, f := range both {
		w.wantTCConnections(0, "affinity", func() {
			if server, _ := w.askFrom(w.other, "tcp", vip(f, 1)); server != "one" {
				t.Errorf("%q answered", server)
			}
		})
	}
	if _, left := w.connectionCounts(); left != 2 {
		t.Errorf("%d connections were left, not 2", left)
	}
}

// The tc program recognizes pods by their address range, or by the device that receives their packets.
func TestPacketsFromPods(t *testing.T) {
	for name, where := range map[string]func(w *world, n *plan.Node){
		"range":  func(w *world, n *plan.Node) { n.PodSources = []netip.Prefix{netip.PrefixFrom(w.other.Addrs[0], 32)} },
		"device": func(w *world, n *plan.Node) { n.PodInterfaces = []string{w.other.Name} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			list := w.service(1, w.endpoints...)
			for _, svc := range list {
				svc.Pools[1] = svc.Pools[0][:1]
				svc.Frontends[0].Routes[plan.FromPod].Pool = 1 // pods can reach only one of the endpoints
			}
			w.apply(list)
			w.needsPackets()
			node := *w.plan.Node
			where(w, &node)
			w.syncNode(&node, list)
			for range 10 {
				w.wantTCConnections(1, "pod", func() {
					if server, _ := w.askFrom(w.other, "tcp", vip(plan.IPv4, 1)); server != "one" {
						t.Errorf("%q answered a pod", server)
					}
				})
			}
		})
	}
}

// Without nftables rules, connections to frontends in the maps still reach an endpoint, because the tc program chooses
// it.
func TestPacketsNeedNoDispatchRules(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	if out, err := w.lab.Node.Command(t.Context(), "nft",
		"flush chain ip edgeway-ebpf services; flush chain ip6 edgeway-ebpf services").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range both {
		w.wantTCConnections(1, "without dispatch", func() { w.askFrom(w.other, "tcp", vip(f, 1)) })
	}
}

// Another program's filter runs both while Edgeway's filter is attached to the same device and after Edgeway has
// removed its filter.
func TestPacketsReachOtherFilters(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	runs := w.attachForeignFilter(w.other.Name)
	w.wantTCConnections(1, "beside a filter", func() { w.askFrom(w.other, "tcp", vip(plan.IPv4, 1)) })
	if runs() == 0 {
		t.Error("the foreign filter saw nothing")
	}
	w.stop()
	before := runs()
	w.askFrom(w.other, "tcp", vip(plan.IPv4, 1))
	if runs() == before {
		t.Error("the foreign filter does not run any more")
	}
	w.start()
	w.apply(w.service(1, w.endpoints...))
}

// attachForeignFilter attaches a filter to the clsact qdisc, as most other programs do.
func (w *world) attachForeignFilter(device string) (runs func() uint64) {
	w.Helper()
	m, p := countingProgram(w.T, ebpf.SchedCLS, ebpf.AttachNone, -1) // -1 is TC_ACT_UNSPEC
	l, err := netlink.LinkByName(device)
	if err != nil {
		w.Fatal(err)
	}
	index := l.Attrs().Index
	attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "clsact"}); err != nil &&
		!errors.Is(err, unix.EEXIST) {
		w.Fatal(err)
	}
	filter := ourFilter(index, p.FD())
	filter.Name, filter.Priority = "foreign", 1
	if err := netlink.FilterAdd(filter); err != nil {
		w.Fatal(err)
	}
	return m
}
