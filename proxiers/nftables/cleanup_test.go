package nftables

import (
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// A packet may traverse the rules while Cleanup deletes the tables. Once the maps are empty, the remaining rules must
// not reject packets, because another backend now serves the Services.
func TestCleanupRejectsNoPacketInFlight(t *testing.T) {
	newHost(t)
	// Sending a packet to the ClusterIP requires a route, although the rules translate the destination.
	for _, args := range [][]string{
		{"link", "set", "lo", "up"}, {"address", "add", "192.0.2.1/32", "dev", "lo"}, {"route", "add", "default", "dev", "lo"},
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v\n%s", args, err, out)
		}
	}
	p, _ := testProxier(t)
	dns := plantest.Service("dns", []plan.Frontend{plantest.ClusterIP("10.96.0.1", 53)},
		plantest.Endpoint("192.0.2.1:5353"))
	dns.Name.Protocol = plan.UDP
	next := plantest.Plan(plantest.Node(), dns)
	nft(t, `table ip other {
		chain output { type nat hook output priority -99; ip daddr 10.96.0.1 udp dport 53 dnat to 192.0.2.1:5353; }
	}`)
	var sent, refused int
	for range 30 { // without the wait, the rules reject 2 packets in each iteration
		apply(t, p, nil, next)
		stop := make(chan struct{})
		var senders sync.WaitGroup
		var all []*sender
		for range runtime.NumCPU() {
			s := newSender(t, &unix.SockaddrInet4{Addr: [4]byte{10, 96, 0, 1}, Port: 53})
			all = append(all, s)
			senders.Go(func() { s.run(stop) })
		}
		if err := Component().Cleanup(t.Context(), proxiers.Env{}); err != nil {
			t.Fatal(err)
		}
		close(stop)
		senders.Wait()
		for _, s := range all {
			if s.failure != nil {
				t.Fatal(s.failure)
			}
			sent, refused = sent+s.sent, refused+s.refused
		}
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d first packets", sent)
	if refused > 0 || sent < 1000 {
		t.Errorf("%d of %d first packets were refused, want none of many", refused, sent)
	}
}

// An interrupted Cleanup leaves the tables disabled. The backend's next full sync enables the tables again, even after
// a daemon restart.
func TestDisabledTablesAreRepaired(t *testing.T) {
	newHost(t)
	p, d := testProxier(t)
	next := plantest.Plan(plantest.Node(), plantest.ManyServices(3, 2)...)
	apply(t, p, nil, next)
	restarted, _ := testProxier(t)
	for _, q := range []*proxier{p, restarted} {
		nft(t, "add table ip edgeway { flags dormant; }\nadd table ip6 edgeway { flags dormant; }")
		if q == p {
			d.wait(t)
		}
		if !strings.Contains(nft(t, "list ruleset"), "dormant") {
			t.Fatal("the tables are not disabled: this test says nothing")
		}
		apply(t, q, nil, next)
		if state := nft(t, "list ruleset"); strings.Contains(state, "dormant") {
			t.Errorf("after a full sync tables are disabled:\n%s", state)
		}
	}
}

// sender sends the first packets of new flows in the test's network namespace.
type sender struct {
	namespace int
	to        unix.Sockaddr

	sent, refused int
	failure       error
}

func newSender(t *testing.T, to unix.Sockaddr) *sender {
	t.Helper()
	ns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ns) })
	return &sender{namespace: ns, to: to}
}

// run sends packets, and counts the sent packets and the packets that a rule rejects. If a rule rejects a packet, the
// system call fails with EPERM.
func (s *sender) run(stop <-chan struct{}) {
	runtime.LockOSThread() // the thread is never unlocked, so it exits with the goroutine
	if s.failure = unix.Setns(s.namespace, unix.CLONE_NEWNET); s.failure != nil {
		return
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := s.send(); errors.Is(err, unix.EPERM) {
			s.refused++
		} else if err != nil {
			s.failure = err
			return
		}
		s.sent++
	}
}

func (s *sender) send() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("?"), 0, s.to)
}
