package sdunit

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"edgeway/test/sdtest"
)

type serviceManager = sdtest.Manager

type datagram = sdtest.Datagram

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newLog() (*slog.Logger, *logBuffer) {
	var b logBuffer
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

// loopback is an IPv4 address that other processes are unlikely to use, so they do not take its free ports.
var loopback = fmt.Sprintf("127.%d.%d.77", os.Getpid()>>8&0xff, os.Getpid()&0xff)

// freeAddr returns an address of the host with a port that is not in use.
func freeAddr(t *testing.T, host string) netip.AddrPort {
	t.Helper()
	l := mustListen(t, netip.AddrPortFrom(netip.MustParseAddr(host), 0))
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func mustListen(t *testing.T, addr netip.AddrPort) *net.TCPListener {
	t.Helper()
	l, err := listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// passedSocket returns a listening socket as systemd would pass it. The returned listener represents systemd's copy of
// the socket.
func passedSocket(t *testing.T, name string) (*os.File, *net.TCPListener, netip.AddrPort) {
	t.Helper()
	l := mustListen(t, netip.MustParseAddrPort("127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	return fileOf(t, l, name), l, l.Addr().(*net.TCPAddr).AddrPort()
}

func fileOf(t *testing.T, socket syscall.Conn, name string) *os.File {
	t.Helper()
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var dup int
	if rawErr := raw.Control(func(fd uintptr) { dup, err = syscall.Dup(int(fd)) }); rawErr != nil || err != nil {
		t.Fatal(rawErr, err)
	}
	syscall.CloseOnExec(dup)
	return os.NewFile(uintptr(dup), name)
}

func connect(t *testing.T, addr netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr.String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// readToEnd reads from a connection until the server closes it, and returns the text and the final error.
func readToEnd(t *testing.T, conn *net.TCPConn) (string, error) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	var out []byte
	buf := make([]byte, 64)
	for {
		n, err := conn.Read(buf)
		out = append(out, buf[:n]...)
		if err != nil {
			return string(out), err
		}
	}
}

func acceptFrom(socket *os.File, within time.Duration) (net.Conn, error) {
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(within))
	return l.Accept()
}

func serveOne(t *testing.T, socket *os.File) {
	t.Helper()
	conn, err := acceptFrom(socket, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
}

func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func inodeOf(t *testing.T, socket syscall.Conn) uint64 {
	t.Helper()
	f := fileOf(t, socket, "")
	defer f.Close()
	return inode(t, int(f.Fd()))
}
