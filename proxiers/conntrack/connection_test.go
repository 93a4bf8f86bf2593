package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

func TestConnectionTriedBeforeRulesIsEstablished(t *testing.T) {
	enterNamespace(t)
	const vip, endpoint, rule = "10.96.0.10:80", "10.0.0.1:8080",
		"ip daddr 10.96.0.10 tcp dport 80 dnat ip to 10.0.0.1:8080"
	listener, err := net.Listen("tcp4", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	translate(t) // the first rules enable connection tracking
	early := startConnecting(t, vip)
	translate(t, rule)
	answered := startConnecting(t, vip)
	if err := connected(answered, 10*time.Second); err != nil {
		t.Fatal(err)
	}

	newStep(t).full(planOf(service(netlink.Scope{Family: plan.IPv4, Protocol: plan.TCP}, "web", []string{vip},
		endpoint)), 1)
	// The kernel retransmits the SYN after one second.
	if err := connected(early, 10*time.Second); err != nil {
		t.Errorf("connection that began before there were rules: %v", err)
	}
	if _, err := unix.Write(answered, []byte("still there")); err != nil {
		t.Errorf("connection of before: %v", err)
	}
}

// startConnecting starts a TCP connection and returns its socket without waiting for the handshake.
func startConnecting(t *testing.T, addr string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	a := netip.MustParseAddrPort(addr)
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
	return fd
}

func connected(fd int, within time.Duration) error {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(within.Milliseconds()))
	if err != nil || n == 0 {
		return errors.Join(errors.New("not connected in time"), err)
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}
