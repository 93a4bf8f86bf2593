package nodeinfo

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/rtnl"
)

// lab is a network namespace for one test. The namespace exists until the test's thread exits.
type lab struct {
	*testing.T
	*Watcher
	log    *bytes.Buffer
	resolv string // resolv replaces /etc/resolv.conf
	// gate blocks notifications to the watcher while a test holds the mutex.
	gate sync.Mutex
}

// gatedKernel is an rtnl.Kernel whose notifications wait until the gate is unlocked.
type gatedKernel struct{ gate *sync.Mutex }

type gatedSocket struct {
	rtnl.Socket
	gatedKernel
}

func (g gatedKernel) Subscribe(groups ...uint) (rtnl.Socket, error) {
	socket, err := rtnl.Host{}.Subscribe(groups...)
	return gatedSocket{socket, g}, err
}

func (s gatedSocket) Receive() ([]syscall.NetlinkMessage, error) {
	messages, err := s.Socket.Receive()
	s.gate.Lock()
	defer s.gate.Unlock()
	return messages, err
}

// newLab moves the test's goroutine into a new network namespace and runs a watcher there.
func newLab(t *testing.T, setup ...string) *lab {
	t.Helper()
	runtime.LockOSThread() // the thread exits with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (this test needs root): %v", err)
	}
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, log: &bytes.Buffer{}, resolv: filepath.Join(t.TempDir(), "resolv.conf")}
	for _, s := range setup {
		l.ip(s)
	}
	l.Watcher = New(slog.New(slog.NewTextHandler(l.log, nil)), Options{
		IgnoreDevices: []string{foreignName}, IgnoreTables: []int{ignoredTable}, Ranges: serviceRanges, IgnoreProtocol: ownProtocol, ResolvConf: []string{l.resolv}, Kernel: gatedKernel{&l.gate},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- l.Watcher.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = ns.Close()
		if strings.Contains(l.log.String(), "failed") {
			t.Errorf("the watcher failed: %s", l.log)
		}
	})
	select {
	case <-l.Ready():
	case <-time.After(30 * time.Second):
		t.Fatal("not ready")
	}
	return l
}

// ip runs the ip command in this thread's network namespace, which child processes inherit.
func (l *lab) ip(args string) {
	l.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		l.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// wantAddrs waits until the host has exactly the listed addresses, written as "address@interface" with "*" for a
// primary address.
func (l *lab) wantAddrs(want ...string) {
	l.Helper()
	deadline := time.After(30 * time.Second)
	for {
		var got []string
		for _, a := range l.Host().Addrs {
			mark := ""
			if a.Primary {
				mark = "*"
			}
			got = append(got, fmt.Sprintf("%s@%s%s", a.Addr, a.Interface, mark))
		}
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-l.Changed():
		case <-deadline:
			l.Fatalf("addresses: got %v, want %v", got, want)
		}
	}
}

func (l *lab) wantChange() {
	l.Helper()
	select {
	case <-l.Changed():
	case <-time.After(50 * time.Second): // a new name server takes up to 20 s, as the manual says
		l.Fatal("the watcher announced no change")
	}
}

// wantNoChange fails the test if the watcher announces a change within four times rtnl.BatchTime.
func (l *lab) wantNoChange() {
	l.Helper()
	select {
	case <-l.Changed():
		l.Errorf("a change was announced: %v", l.Host().Addrs)
	case <-time.After(4 * rtnl.BatchTime):
	}
}

// veth lists the commands that create a pair of interfaces. The tests use the interface v0. The commands disable
// link-local addresses, because these addresses would cause events.
var veth = []string{
	"link set lo up", "link add v0 type veth peer name v1", "link set v0 addrgenmode none",
	"link set v1 addrgenmode none",
	"link set v1 up", "link set v0 up",
}

func TestAddressChanges(t *testing.T) {
	l := newLab(t, veth...)
	l.wantAddrs("127.0.0.1@lo", "::1@lo")
	l.ip("addr add 192.0.2.1/24 dev v0")
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "::1@lo")
	l.ip("addr add 192.0.2.2/24 dev v0")
	l.ip("addr add 10.1.1.1/32 dev lo")
	l.wantAddrs("10.1.1.1@lo", "127.0.0.1@lo", "192.0.2.1@v0", "192.0.2.2@v0", "::1@lo")
	l.ip("addr del 192.0.2.2/24 dev v0")
	l.wantAddrs("10.1.1.1@lo", "127.0.0.1@lo", "192.0.2.1@v0", "::1@lo")
}

func TestDefaultRouteDeterminesPrimary(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/24 dev v0", "addr add 192.0.2.7/24 dev v0",
		"addr add 198.51.100.1/24 dev v0")...)
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "192.0.2.7@v0", "198.51.100.1@v0", "::1@lo")

	l.ip("route add default via 192.0.2.254")
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0*", "192.0.2.7@v0", "198.51.100.1@v0", "::1@lo")

	l.ip("route replace default via 198.51.100.254")
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "192.0.2.7@v0", "198.51.100.1@v0*", "::1@lo")

	l.ip("route replace default via 198.51.100.254 src 192.0.2.7")
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "192.0.2.7@v0*", "198.51.100.1@v0", "::1@lo")

	l.ip("route del default")
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "192.0.2.7@v0", "198.51.100.1@v0", "::1@lo")

	l.ip("route add unreachable default metric 5")
	l.wantNoChange()
}

// Without temporary addresses, the primary address must be the source address that the kernel chooses.
func TestPrimaryMatchesKernelSource(t *testing.T) {
	for name, routes := range map[string][]string{
		"gateway":       {"route add default via 192.0.2.254", "-6 route add default via 2001:db8::fe"},
		"on the link":   {"route add default dev v0", "-6 route add default dev v0"},
		"lowest metric": {"route add default via 192.0.2.254 metric 20", "route add default via 198.51.100.254 metric 10", "-6 route add default dev v0"},
		"several hops":  {"route add default nexthop via 198.51.100.254 nexthop via 198.51.100.253", "-6 route add default nexthop via 2001:db8::fe nexthop via 2001:db8::fd"},
	} {
		t.Run(name, func(t *testing.T) {
			setup := append(slices.Clone(veth), "addr add 192.0.2.1/24 dev v0", "addr add 198.51.100.1/24 dev v0",
				"addr add fd00::1/64 dev v0 nodad", "addr add 2001:db8::1/64 dev v0 nodad")
			l := newLab(t, append(setup, routes...)...)
			for _, far := range []string{"203.0.113.1", "2600::1"} {
				out, err := exec.Command("ip", "route", "get", far).Output()
				if err != nil {
					t.Fatalf("ip route get %s: %v", far, err)
				}
				_, after, _ := strings.Cut(string(out), " src ")
				kernels := strings.Fields(after)[0]
				primary := slices.IndexFunc(l.Host().Addrs,
					func(a Addr) bool { return a.Primary && a.Addr.String() == kernels })
				if primary < 0 {
					t.Errorf("the kernel takes %s, but it is not primary: %v", kernels, l.Host().Addrs)
				}
			}
		})
	}
}

func TestInterfaceDownAndUp(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/24 dev v0", "route add default via 192.0.2.254")...)
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0*", "::1@lo")
	l.ip("link set v0 down") // the kernel also removes the route
	l.wantAddrs("127.0.0.1@lo", "::1@lo")
	l.ip("link set v0 up")
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "::1@lo")
	l.ip("link del v0")
	l.wantAddrs("127.0.0.1@lo", "::1@lo")
}

func TestTentativeAddressAppearsWhenUsable(t *testing.T) {
	l := newLab(t, veth...)
	l.wantAddrs("127.0.0.1@lo", "::1@lo")
	begin := time.Now()
	l.ip("addr add 2001:db8::1/64 dev v0") // duplicate address detection takes about a second
	l.wantAddrs("127.0.0.1@lo", "::1@lo", "2001:db8::1@v0")
	if took := time.Since(begin); took < 500*time.Millisecond {
		t.Errorf("appeared after %v, while it was tentative", took)
	}
}

func TestIrrelevantChangesCauseNoEvent(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/24 dev v0", "route add default via 192.0.2.254")...)
	l.gate.Lock() // on a busy machine, more than rtnl.BatchTime may pass between two commands
	l.ip("link set v0 mtu 1400")
	l.ip("route add 203.0.113.0/24 via 192.0.2.254")
	l.ip("addr add 192.0.2.9/24 dev v0")
	l.ip("addr del 192.0.2.9/24 dev v0")
	l.gate.Unlock()
	select {
	case <-l.NetworkChanged():
	case <-time.After(30 * time.Second):
		t.Fatal("no notice came")
	}
	l.wantNoChange()
}

const foreignName = "kube-ipvs0"

// A proxy adds 5,000 addresses to its interface and removes them one by one. The watcher ignores the proxy's addresses,
// regardless of the interface's type and creation time. The watcher does not ignore the host's own addresses.
func TestForeignInterfaceIsIgnored(t *testing.T) {
	foreign := []string{
		"link add " + foreignName + " type veth peer name v3",
		"link set v3 addrgenmode none", "link set " + foreignName + " addrgenmode none", "link set v3 up",
		"link set " + foreignName + " up",
	}
	for name, setup := range map[string][2][]string{
		"there before": {append(slices.Clone(veth), foreign...), nil},
		"made later":   {veth, foreign},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, setup[0]...)
			l.wantAddrs("127.0.0.1@lo", "::1@lo")
			for _, s := range setup[1] {
				l.ip(s)
			}
			l.churnAddrsOn(foreignName, 100, 5000)
			l.wantNoChange()
			l.wantAddrs("127.0.0.1@lo", "::1@lo")
			l.ip("addr add 192.0.2.1/24 dev v0")
			l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "::1@lo")
		})
	}
}

// The watcher ignores an interface after a rename to an ignored name, and stops ignoring it after a rename to another
// name.
func TestForeignInterfaceIsRenamed(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/24 dev v0")...)
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "::1@lo")
	rename := func(from, to string) {
		l.ip("link set " + from + " down")
		l.ip("link set " + from + " name " + to)
		l.ip("link set " + to + " up")
	}
	rename("v0", foreignName)
	l.wantAddrs("127.0.0.1@lo", "::1@lo")
	rename(foreignName, "v0")
	l.wantAddrs("127.0.0.1@lo", "192.0.2.1@v0", "::1@lo")
}

func TestLinkKind(t *testing.T) {
	l := newLab(t, veth...)
	up, steady, err := listLinks([]string{"v1"})
	if err != nil || !steady {
		t.Fatalf("steady %v: %v", steady, err)
	}
	kinds := map[string]string{}
	for _, one := range up {
		kinds[one.name] = one.kind
	}
	if want := map[string]string{"lo": "device", "v0": "veth"}; !maps.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
	l.wantNoChange()
}

// churnAddrs adds 2,000 addresses in 10.<net>.0.0/16 to lo, and deletes all but the last.
func (l *lab) churnAddrs(net int) {
	l.Helper()
	l.churnAddrsOn("lo", net, 2000)
}

func (l *lab) churnAddrsOn(device string, net, count int) {
	l.Helper()
	var batch strings.Builder
	for i := range count {
		fmt.Fprintf(&batch, "addr add 10.%d.%d.%d/32 dev %s\n", net, i/256, i%256, device)
	}
	for i := range count - 1 {
		fmt.Fprintf(&batch, "addr del 10.%d.%d.%d/32 dev %s\n", net, i/256, i%256, device)
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		l.Fatalf("ip -batch: %v: %s", err, out)
	}
}

// If addresses change faster than the watcher can list them, the watcher still reports the correct final state and no
// error.
func TestAddressStorm(t *testing.T) {
	l := newLab(t, "link set lo up")
	l.churnAddrs(100)
	l.wantAddrs("10.100.7.207@lo", "127.0.0.1@lo", "::1@lo")
}
