package sdunit

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"edgeway/test/sdtest"
)

func newSockets(t *testing.T, files ...*os.File) (*Sockets, *logBuffer) {
	t.Helper()
	logger, log := newLog()
	return NewSockets(NewManager(logger), files, logger), log
}

func TestListenersSurviveRestartInFDStore(t *testing.T) {
	manager := sdtest.New(t)
	for _, host := range []string{loopback, "::1"} {
		addr := freeAddr(t, host)
		first, log := newSockets(t)
		listener, err := first.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		sent := manager.Receive()
		if len(sent) != 1 || !sent[0].Has("FDSTORE=1") || len(sent[0].FDs) != 1 {
			t.Fatalf("%s: the service manager got %+v; log %s", addr, sent, log)
		}
		if inode(t, sent[0].FDs[0]) != inodeOf(t, listener) {
			t.Errorf("%s: the stored descriptor is another socket", addr)
		}
		name := sent[0].Value("FDNAME")
		if !strings.HasPrefix(name, storePrefix) || strings.Contains(name, ":") {
			t.Errorf("%s: the name in the store is %q", addr, name)
		}

		listener.Close() // simulates the exit of the process
		waiting := connect(t, addr)
		second, log := newSockets(t, os.NewFile(uintptr(dup(t, sent[0].FDs[0])), name))
		if got := second.Unused(); len(got) != 1 || got[0] != addr {
			t.Fatalf("%s: unclaimed %v", addr, got)
		}
		again, err := second.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		serveOne(t, again)
		if text, err := readToEnd(t, waiting); text != "hello" || !errors.Is(err, io.EOF) {
			t.Errorf("%s: a client of the pause got %q, %v", addr, text, err)
		}
		if len(second.Unused()) != 0 || log.String() != "" {
			t.Errorf("%s: unclaimed %v, log %s", addr, second.Unused(), log)
		}
		if sent := manager.Receive(); len(sent) != 0 {
			t.Errorf("%s: what is stored was stored again: %+v", addr, sent)
		}
		second.Release(addr)
		if sent := manager.Receive(); len(sent) != 1 || !sent[0].Has("FDSTOREREMOVE=1") ||
			sent[0].Value("FDNAME") != name {
			t.Errorf("%s: the end of the socket was told as %+v", addr, sent)
		}
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(n)
	return n
}

func TestReleasedSocketRefusesAndReopens(t *testing.T) {
	manager := sdtest.New(t)
	s, _ := newSockets(t)
	addr := freeAddr(t, loopback)
	for range 3 {
		if _, err := s.Listen(addr); err != nil {
			t.Fatal(err) // the error is EADDRINUSE if only the daemon's copy was closed
		}
		s.Release(addr)
		// The service manager has not read any messages yet, so its copy of each socket is still open.
		if conn, err := net.Dial("tcp", addr.String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial gave %v, %v", conn, err)
		}
	}
	if n := len(manager.Receive()); n != 6 {
		t.Errorf("%d messages, want 6", n)
	}
}

func TestListenTwiceReturnsSameListener(t *testing.T) {
	s, _ := newSockets(t)
	addr := freeAddr(t, loopback)
	a, err := s.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release(addr)
	if b, err := s.Listen(addr); a != b || err != nil {
		t.Errorf("%p and %p, %v", a, b, err)
	}
}

func TestListenOnPortInUse(t *testing.T) {
	s, _ := newSockets(t)
	l := mustListen(t, netip.MustParseAddrPort("127.0.0.1:0"))
	defer l.Close()
	if _, err := s.Listen(l.Addr().(*net.TCPAddr).AddrPort()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the error is %v", err)
	}
	s.Release(l.Addr().(*net.TCPAddr).AddrPort()) // the port was never open
}

func TestIPv6ListenerDoesNotBindIPv4(t *testing.T) {
	s, _ := newSockets(t)
	six := freeAddr(t, "::1")
	if _, err := s.Listen(six); err != nil {
		t.Fatal(err)
	}
	defer s.Release(six)
	four := netip.AddrPortFrom(netip.MustParseAddr(loopback), six.Port())
	if _, err := s.Listen(four); err != nil {
		t.Fatal(err)
	}
	s.Release(four)
}

// The port of a socket unit might not be a NodePort yet, or might no longer be a NodePort.
func TestClientsOfUnclaimedSocketWait(t *testing.T) {
	manager := sdtest.New(t)
	file, _, addr := passedSocket(t, "edgeway-nodeport@30080.socket")
	s, log := newSockets(t, file)
	if got := s.Unused(); len(got) != 1 || got[0] != addr {
		t.Fatalf("unclaimed: %v", got)
	}
	s.Release(addr)
	if len(s.Unused()) != 0 {
		t.Error("a socket that was released is still unclaimed")
	}
	waiting := connect(t, addr)
	listener, err := s.Listen(addr) // the Service now exists
	if err != nil {
		t.Fatal(err)
	}
	serveOne(t, listener)
	if text, err := readToEnd(t, waiting); text != "hello" || !errors.Is(err, io.EOF) {
		t.Errorf("a client that waited got %q, %v", text, err)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, addr.String()) ||
		!strings.Contains(text, "edgeway-nodeport@30080.socket") {
		t.Errorf("not one warning with address and unit:\n%s", text)
	}
	if sent := manager.Receive(); len(sent) != 0 {
		t.Errorf("a socket unit's socket was stored or removed: %+v", sent)
	}
}

func TestUnusableDescriptorsAreClosed(t *testing.T) {
	manager := sdtest.New(t)
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	unix, err := net.Listen("unix", t.TempDir()+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	everywhere := mustListen(t, netip.MustParseAddrPort("0.0.0.0:0"))
	defer everywhere.Close()
	listener := mustListen(t, netip.MustParseAddrPort("127.0.0.1:0"))
	defer listener.Close()
	connected := connect(t, listener.Addr().(*net.TCPAddr).AddrPort())

	for name, file := range map[string]*os.File{
		"pipe":             os.NewFile(uintptr(dup(t, int(pipe.Fd()))), "pipe"),
		"udp.socket":       fileOf(t, udp.(*net.UDPConn), "udp.socket"),
		"unix.socket":      fileOf(t, unix.(*net.UnixListener), "unix.socket"),
		"any.socket":       fileOf(t, everywhere, "any.socket"),
		"connected":        fileOf(t, connected, "connected"),
		"nodeport-strange": fileOf(t, udp.(*net.UDPConn), "nodeport-strange"),
	} {
		fd := int(file.Fd())
		s, log := newSockets(t, file)
		if got := s.Unused(); len(got) != 0 {
			t.Errorf("%s: adopted as %v", name, got)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "fd_name="+name) {
			t.Errorf("%s: not one warning with the name:\n%s", name, text)
		}
		if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: descriptor %d is still open", name, fd)
		}
	}
	sent := manager.Receive()
	if len(sent) != 1 || !sent[0].Has("FDSTOREREMOVE=1") || sent[0].Value("FDNAME") != "nodeport-strange" {
		t.Errorf("only what is in our part of the store is to be removed: %+v", sent)
	}
}

// systemd may pass two sockets for one address: one from a socket unit with ReusePort=yes, and one from the fd store.
// All clients must reach the socket from the socket unit.
func TestDuplicateAddressIsKeptOnce(t *testing.T) {
	addr := freeAddr(t, loopback)
	var files []*os.File
	for _, name := range []string{"x.socket", "nodeport-a"} {
		l := listenReusePort(t, addr)
		files = append(files, fileOf(t, l, name))
		l.Close()
	}
	s, log := newSockets(t, files...)
	if got := s.Unused(); len(got) != 1 || got[0] != addr || s.open[addr].unitName != "x.socket" {
		t.Fatalf("unclaimed: %v", got)
	}
	if text := log.String(); !strings.Contains(text, addr.String()) || !strings.Contains(text, "nodeport-a") {
		t.Errorf("no warning with address and name: %s", text)
	}
	listener, err := s.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		conn := connect(t, addr)
		serveOne(t, listener)
		conn.Close()
	}
}

func listenReusePort(t *testing.T, addr netip.AddrPort) *net.TCPListener {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		_ = raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, 15 /* SO_REUSEPORT */, 1)
		})
		return err
	}}
	l, err := config.Listen(t.Context(), "tcp4", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	return l.(*net.TCPListener)
}
