package ebpf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

// lowDelay is the IP type of service that the routing rule for the second path matches.
const lowDelay = 0x10

func (w *world) on(h *netlab.Host, line string) {
	w.Helper()
	words := strings.Fields(line)
	if out, err := h.Command(context.WithoutCancel(w.Context()), words[0], words[1:]...).CombinedOutput(); err != nil {
		w.Fatalf("%s: %v: %s", line, err, bytes.TrimSpace(out))
	}
}

// addSecondPath adds the first endpoint's addresses to the second endpoint's host. The main routing table routes the
// first endpoint's addresses to its own host, and routing table 77 routes them to the second endpoint's host. For each
// device, addSecondPath returns the addresses with which the node masquerades.
func (w *world) addSecondPath() map[string][]netip.Addr {
	w.Helper()
	sources := map[string][]netip.Addr{
		"one": {plantest.Addr("192.0.2.101"), plantest.Addr("2001:db8:77::101")}, "two": {plantest.Addr("192.0.2.102"), plantest.Addr("2001:db8:77::102")},
	}
	for name, list := range sources {
		for _, a := range list {
			w.lab.AddNodeAddr(name, a)
		}
	}
	for i, a := range w.endpoints[0].Addrs {
		flags := map[bool]string{true: " nodad"}[a.Is6()]
		w.on(w.endpoints[1], "ip address add "+netip.PrefixFrom(a, a.BitLen()).String()+" dev eth0"+flags)
		if err := w.endpoints[1].Serve("two", netip.AddrPortFrom(a, endpointPort), plan.TCP); err != nil {
			w.Fatal(err)
		}
		// The route specifies the source address, because each device has a different address.
		w.on(w.lab.Node, fmt.Sprintf("ip route replace %s dev one src %s", a, sources["one"][i]))
		w.on(w.lab.Node, fmt.Sprintf("ip route add %s dev two src %s table 77", a, sources["two"][i]))
	}
	return sources
}

// addRoutingRule adds a routing rule for routing table 77 in both families. The rule exists until the test ends or the
// returned function is called.
func (w *world) addRoutingRule(match string) (remove func()) {
	w.Helper()
	there := true
	remove = func() {
		for _, family := range []string{"-4", "-6"} {
			if there {
				w.on(w.lab.Node, "ip "+family+" rule del "+match+" table 77")
			}
		}
		there = false
	}
	for _, family := range []string{"-4", "-6"} {
		w.on(w.lab.Node, "ip "+family+" rule add "+match+" table 77")
	}
	w.Cleanup(remove)
	return remove
}

// askWithClass is like askFrom with TCP, but also sets the IPv4 type of service or the IPv6 traffic class.
func (w *world) askWithClass(class int, to netip.AddrPort) (server, seen string) {
	w.Helper()
	d := net.Dialer{Timeout: patience, Control: control(func(fd int) error {
		if to.Addr().Is4() {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, class)
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, class)
	})}
	var c net.Conn
	err := w.other.Do(func() (err error) { c, err = d.Dial("tcp", to.String()); return err })
	if err == nil {
		defer c.Close()
		server, seen, err = conversation(c)
	}
	if err != nil {
		w.Errorf("connection to %s with class %#x: %v", to, class, err)
	}
	return server, seen
}

// masqueradedService returns Service 1 with one endpoint, and with masquerading for connections from other hosts.
func (w *world) masqueradedService() []*plan.ServicePort {
	list := w.service(1, w.endpoints[0])
	for _, svc := range list {
		svc.Frontends[0].Routes[plan.FromOutside].SNAT = true
	}
	return list
}

// If a routing rule matches the type of service, the tc program masquerades with the source address of the route for
// this type of service.
func TestMasqueradeByTypeOfService(t *testing.T) {
	w := newWorld(t)
	sources := w.addSecondPath()
	w.addRoutingRule("tos 0x10")
	w.apply(w.masqueradedService())
	w.needsPackets()
	for i, f := range both {
		for class, want := range map[int]string{0: "one", lowDelay: "two"} {
			w.wantTCConnections(1, want, func() {
				if server, seen := w.askWithClass(class, vip(f, 1)); server != want ||
					seen != sources[want][i].String() {
					t.Errorf("%s, class %#x: %s answered, and saw %s; the route leads to %s from %s", f, class, server,
						seen, want, sources[want][i])
				}
			})
		}
	}
}

// If a routing rule matches a packet mark, the tc program leaves masquerading to nftables, because an nftables rule may
// set the mark after the tc program has run.
func TestMasqueradeByPacketMark(t *testing.T) {
	w := newWorld(t)
	sources := w.addSecondPath()
	w.nft("add table inet marks; add chain inet marks prerouting { type filter hook prerouting priority -150; }; add rule inet marks prerouting tcp dport 80 meta mark set meta mark or 0x77")
	t.Cleanup(func() { w.nft("delete table inet marks") })
	w.apply(w.masqueradedService())
	w.needsPackets()
	wants := func(packets uint64, server string) {
		t.Helper()
		s := w.proxier.shortcuts
		flags := func() uint32 { s.mu.Lock(); defer s.mu.Unlock(); return s.config.Flags }
		deadline := time.Now().Add(patience)
		for ; (flags()&markRules == 0) != (packets > 0); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the change of the routing rules was not noticed")
			}
		}
		for i, f := range both {
			w.wantTCConnections(packets, server, func() {
				if got, seen := w.askFrom(w.other, "tcp", vip(f, 1)); got != server ||
					seen != sources[server][i].String() {
					t.Errorf("%s: %s answered, and saw %s; the route leads to %s from %s", f, got, seen, server,
						sources[server][i])
				}
			})
		}
		d := w.plan.Decide(plan.Packet{
			Protocol: plan.TCP, Src: w.other.Addrs[0], Dst: vip(plan.IPv4, 1),
			InInterface: w.other.Name,
		})
		if way := w.proxier.explainPath(d, false); strings.Contains(way, "by tc") != (packets > 0) {
			t.Errorf("%q", way)
		}
	}
	wants(1, "one")
	remove := w.addRoutingRule("fwmark 0x77/0x77")
	wants(0, "two")
	remove()
	wants(1, "one")
	w.addRoutingRule("fwmark 0/0x77") // matches the packets before nftables sets the mark, and not afterwards
	wants(0, "one")
}

// If the connection-tracking table is more than half full, the tc program adds no entry and nftables serves new
// connections.
func TestHalfFullTracking(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	s := w.proxier.shortcuts
	set := func(result func() (bool, error), flags uint32, packets bool) {
		t.Helper()
		s.mu.Lock()
		s.trackingFull = result
		s.mu.Unlock()
		is := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.config.Flags == flags && (s.config.Packets > 0) == packets && (s.tcErr == nil) == packets
		}
		for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the daemon does not look at connection tracking")
			}
		}
	}
	ask := func(n uint64, what string) {
		t.Helper()
		w.wantTCConnections(n, what, func() { w.askFrom(w.other, "tcp", vip(plan.IPv4, 1)) })
	}
	before := w.counted(leftRate)
	set(func() (bool, error) { return true, nil }, trackingIsFull, true)
	ask(0, "half full")
	if n := w.counted(leftRate) - before; n != 1 {
		t.Errorf("%d connections were counted as left to nftables, not 1", n)
	}
	set(func() (bool, error) { return false, errors.New("unreadable") }, 0, false)
	ask(0, "unreadable")
	set(halfFull, 0, true)
	ask(1, "room again")
}

// TestTrackingLimit verifies that the tc program's limit for the connection-tracking table is half of the kernel's
// maximum.
func TestTrackingLimit(t *testing.T) {
	full := newWorld(t).proxier.shortcuts.trackingFull
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine, and the mounts end with the thread
		const folder = "/proc/sys/net/netfilter"
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("tmpfs", folder, "tmpfs", 0, "")
		}
		if err != nil {
			t.Errorf("replace the kernel's numbers: %v", err)
			return
		}
		for _, c := range []struct {
			entries, maximum string
			want             bool
		}{{"4", "8", false}, {"5", "8", true}, {"5", "0", false}} {
			err := errors.Join(os.WriteFile(folder+"/nf_conntrack_count", []byte(c.entries), 0o600),
				os.WriteFile(folder+"/nf_conntrack_max", []byte(c.maximum), 0o600))
			if err != nil {
				t.Error(err)
			}
			if got, err := full(); got != c.want || err != nil {
				t.Errorf("%s entries of at most %s: full %v, error %v, want %v", c.entries, c.maximum, got, err, c.want)
			}
		}
	}()
	<-done
}
