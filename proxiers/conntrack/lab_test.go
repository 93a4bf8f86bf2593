package conntrack

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rtnetlink "github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// enterNamespace moves the test to a new network namespace. The goroutine stays locked to its thread, so the Go runtime
// ends the thread after the test, and the kernel then removes the namespace. The loopback device has the endpoints'
// addresses. Packets to other addresses leave the host through a default route and create connection-tracking entries.
func enterNamespace(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it makes a network namespace")
	}
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "out", "type", "veth", "peer", "name", "away"},
		{"link", "set", "out", "up"},
		{"link", "set", "away", "up"},
		{"addr", "add", "192.0.2.1/24", "dev", "out"},
		{"addr", "add", "192.0.2.2/24", "dev", "out"},
		{"addr", "add", "2001:db8::1/64", "dev", "out", "nodad"},
		{"neigh", "add", "192.0.2.254", "lladdr", "02:00:00:00:00:01", "dev", "out"},
		{"neigh", "add", "2001:db8::fe", "lladdr", "02:00:00:00:00:01", "dev", "out"},
		{"route", "add", "default", "via", "192.0.2.254"},
		{"-6", "route", "add", "default", "via", "2001:db8::fe"},
		{"addr", "add", "10.0.0.1/32", "dev", "lo"},
		{"addr", "add", "10.0.0.2/32", "dev", "lo"},
		{"addr", "add", "fd00::1/128", "dev", "lo", "nodad"},
		{"addr", "add", "fd00::2/128", "dev", "lo", "nodad"},
	} {
		run(t, "", "ip", args...)
	}
	awaitRoutes(t, "fd00::1", "fd00::2", "2001:db8::1")
}

// awaitRoutes waits until the kernel has local routes to the new IPv6 addresses. The kernel (6.18) creates an address's
// local route shortly after it acknowledges the request to add the address, even with "nodad".
func awaitRoutes(t testing.TB, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			routes, err := rtnetlink.RouteGet(net.ParseIP(addr))
			if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("routes to %s: %v, %v", addr, routes, err)
			}
		}
	}
}

// translate replaces all nft rules with the given rules in the output hook, and with a rule that enables connection
// tracking.
func translate(t testing.TB, rules ...string) {
	t.Helper()
	run(t, `flush ruleset
table inet t {
	chain track {
		type filter hook output priority 0
		ct state new accept
	}
	chain nat {
		type nat hook output priority -100
		`+strings.Join(rules, "\n")+`
	}
}
`, "nft", "-f", "-")
}

func run(t testing.TB, stdin, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// echo runs a UDP server at addr. The server responds to every datagram with the string addr.
func echo(t testing.TB, addr string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(addr), from)
		}
	}()
}

// client is a UDP client that keeps its source port, as DNS resolvers and SIP phones do.
type client struct {
	t    testing.TB
	conn net.Conn
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t, conn}
}

func (c *client) send() {
	c.t.Helper()
	if _, err := c.conn.Write([]byte("?")); err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a datagram and returns the address of the endpoint that responded, or "" after the timeout.
func (c *client) ask(within time.Duration) string {
	c.t.Helper()
	c.send()
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		c.t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := c.conn.Read(buf)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal(err)
	}
	return string(buf[:n])
}

func (c *client) wantAnswer(want string) {
	c.t.Helper()
	within := 10 * time.Second
	if want == "" {
		within = 150 * time.Millisecond
	}
	if got := c.ask(within); got != want {
		c.t.Errorf("datagram to %s: answered by %q, want %q", c.conn.RemoteAddr(), got, want)
	}
}

func flows(t testing.TB, s netlink.Scope) []*netlink.Flow {
	t.Helper()
	tab, err := netlink.OpenConntrack()
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	var list []*netlink.Flow
	if err := tab.Dump(s, netip.AddrPort{}, func(f *netlink.Flow) { list = append(list, f) }); err != nil {
		t.Fatal(err)
	}
	return list
}

// idOf returns the ID of the flow to dst, or 0 if there is none.
func idOf(t testing.TB, s netlink.Scope, dst string) uint32 {
	t.Helper()
	var id uint32
	for _, f := range flows(t, s) {
		if f.Orig.Dst == netip.MustParseAddrPort(dst) {
			if id != 0 {
				t.Fatalf("more than one flow to %s", dst)
			}
			id = f.ID
		}
	}
	return id
}

// createFlows creates flows to n addresses that belong to no Service.
func createFlows(t testing.TB, n int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	for i := range n {
		to := &syscall.SockaddrInet4{Port: 53, Addr: [4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)}}
		if err := syscall.Sendto(fd, []byte("?"), 0, to); err != nil {
			t.Fatal(err)
		}
	}
}

type step struct {
	t        *testing.T
	follower *follower
	last     *plan.Plan
}

func newStep(t *testing.T) *step { return &step{t: t, follower: newFollower(t)} }

func newFollower(t testing.TB) *follower {
	t.Helper()
	p, err := Component().New(t.Context(), proxiers.Env{
		Logger:   slog.New(slog.DiscardHandler),
		Families: []plan.Family{plan.IPv4, plan.IPv6},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p.(*follower)
}

// readCounts reads the number of deleted flows and the number of cleanups from the follower's metrics.
func (s *step) readCounts() (deleted, looks int) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.follower)
	families, err := registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			deleted += int(m.GetCounter().GetValue())
			looks += int(m.GetHistogram().GetSampleCount())
		}
	}
	return deleted, looks
}
