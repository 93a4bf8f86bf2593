package ebpf

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// connectUDP connects a UDP socket to a Service and exchanges a request and a response.
func (w *world) connectUDP(to netip.AddrPort) net.Conn {
	w.Helper()
	c, err := net.Dial("udp", to.String())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	if _, err := answer(c); err != nil {
		w.Fatal(err)
	}
	return c
}

// wantAborted fails the test unless a read from the socket returns ECONNABORTED.
func (w *world) wantAborted(c net.Conn) {
	w.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		w.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		w.Errorf("a read from %s returns %v, not ECONNABORTED", c.RemoteAddr(), err)
	}
}

func (w *world) connections() (n int) {
	w.Helper()
	m := typedMap[uint64, socketsConnection]{w.proxier.shortcuts.objects.Connections}
	if err := m.forEach(func(uint64, socketsConnection) { n++ }); err != nil {
		w.Fatal(err)
	}
	return n
}

// A DNS resolver opens a socket for each query. The connections map keeps the entries for open sockets while an
// application opens and closes many other sockets.
func TestShortLivedSocketsEvictNoOther(t *testing.T) {
	const short = 20_000
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints[0]), w.service(2, w.endpoints[1]))
	var open []net.Conn
	for _, f := range both {
		open = append(open, w.connectUDP(vip(f, 1)))
	}
	to := sockaddr(vip(plan.IPv4, 2))
	for range short {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Connect(fd, to), unix.Close(fd))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := w.connections(); n != len(open) {
		t.Errorf("the map has %d sockets, and %d are open", n, len(open))
	}
	w.apply(w.service(1, w.endpoints[1]), w.service(2, w.endpoints[1]))
	for _, c := range open {
		w.wantAborted(c)
	}
	if n := w.connections(); n != 0 {
		t.Errorf("the map still has %d sockets", n)
	}
}

// If a UDP socket is connected to a Service and the application reconnects it to another address, the socket no longer
// belongs to the Service.
func TestSocketsThatConnectElsewhere(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints[0]))
	for _, f := range both {
		fd, err := unix.Socket(map[plan.Family]int{plan.IPv4: unix.AF_INET, plan.IPv6: unix.AF_INET6}[f],
			unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		direct := netip.AddrPortFrom(w.endpoints[0].Addr(vip(f, 1).Addr()), endpointPort)
		for _, to := range []netip.AddrPort{vip(f, 1), direct} {
			if err := unix.Connect(fd, sockaddr(to)); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.connections(); n != 0 {
			t.Errorf("%s: the map has %d sockets", f, n)
		}
		w.apply(w.service(1, w.endpoints[1]))
		if peer, err := unix.Getpeername(fd); err != nil || addrPortOf(peer) != direct {
			t.Errorf("%s: the socket has the peer %v, not %s: %v", f, peer, direct, err)
		}
		w.apply(w.service(1, w.endpoints[0]))
	}
}

// If the connections map is full, nftables forwards the next socket's packets, and the programs stay active.
func TestFullConnectionsMap(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	m := typedMap[uint64, socketsConnection]{w.proxier.shortcuts.objects.Connections}
	var fill elements[uint64, socketsConnection]
	e := selfTestEndpoint(plan.IPv4) // an endpoint of the self-test, so that no entry is an orphan
	for i := range m.MaxEntries() {
		fill.add(1<<63+uint64(i), socketsConnection{
			Addr: addressOf(e.Addr()), Service: selfTestSet(plan.IPv4),
			Port: networkOrder(e.Port()),
		})
	}
	if err := m.put(fill); err != nil {
		t.Fatal(err)
	}
	before := w.counted(leftRoom)
	w.wantShortcut(0, "a full map", func() { w.ask("udp", vip(plan.IPv4, 1)) })
	if n := w.counted(leftRoom) - before; n != 1 {
		t.Errorf("%d sockets were counted as left to nftables, not 1", n)
	}
	w.wantShortcut(1, "TCP beside a full map", func() { w.ask("tcp", vip(plan.IPv4, 1)) })
	for _, f := range both {
		if err := selfTest(f); err != nil {
			t.Error(err)
		}
	}
	if err := m.remove(fill.keys); err != nil {
		t.Fatal(err)
	}
	w.wantShortcut(1, "room again", func() { w.ask("udp", vip(plan.IPv4, 1)) })
}

func TestOrphansAreRetried(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints[0]))
	c := w.connectUDP(vip(plan.IPv4, 1))
	s := w.proxier.shortcuts
	failures := 0
	s.orphans.destroy = func(*diagRequest) error { failures++; return unix.ENOBUFS }
	w.apply(w.service(1, w.endpoints[1]))
	if n := w.connections(); n != 1 || failures != 1 {
		t.Fatalf("the map has %d sockets after %d failures, not 1 after 1", n, failures)
	}
	s.orphans.destroy = destroySocket
	w.maintainConnections()
	w.wantAborted(c)
}

// maintainConnections runs the backend's deferred work until the connections map is empty.
func (w *world) maintainConnections() {
	w.Helper()
	for deadline := time.Now().Add(patience); w.connections() > 0; {
		due := w.proxier.Due()
		if due.IsZero() || time.Now().After(deadline) {
			w.Fatalf("nothing is due, and the map still has the socket: %s", due)
		}
		time.Sleep(time.Until(due))
		if err := w.proxier.Maintain(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
}

// TestUnlistedOrphanIsRetried simulates an orphaned socket that the kernel does not list because the socket's connect
// call has not returned yet. The connections map must keep the socket's entry until a later attempt destroys the
// socket.
func TestUnlistedOrphanIsRetried(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints[0]))
	m := typedMap[uint64, socketsConnection]{w.proxier.shortcuts.objects.Connections}
	var unlisted elements[uint64, socketsConnection]
	unlisted.add(1<<63, socketsConnection{Addr: addressOf(w.endpoints[0].Addrs[0]), Port: networkOrder(endpointPort)})
	if err := m.put(unlisted); err != nil {
		t.Fatal(err)
	}
	w.apply(w.service(1, w.endpoints[1]))
	if n := w.connections(); n != 1 {
		t.Fatalf("the map has %d sockets after the first attempt, not 1", n)
	}
	w.maintainConnections()
}
