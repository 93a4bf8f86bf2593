package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/bench/cgroup"
)

const (
	patience = 10 * time.Second
	silence  = 300 * time.Millisecond
)

var (
	everyProtocol = []plan.Protocol{plan.TCP, plan.UDP, plan.SCTP}
	podAddrs      = []netip.Addr{netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("fd00:10:244:1::2")}
	clientAddrs   = []netip.Addr{netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("2001:db8:113::2")}
)

func TestMain(m *testing.M) { os.Exit(Isolate(m)) }

func twoHosts(t *testing.T, opts Options) (l *Lab, pod, client *Host) {
	l = New(t, opts)
	pod, client = l.Host("pod", podAddrs...), l.Host("client", clientAddrs...)
	for _, a := range podAddrs {
		if err := pod.Serve("pod", netip.AddrPortFrom(a, 8080), everyProtocol...); err != nil {
			t.Fatal(err)
		}
	}
	return l, pod, client
}

func nft(t *testing.T, h *Host, rules string) {
	t.Helper()
	cmd := h.Command(context.Background(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
}

func TestProtocolsReachServerThroughNode(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		t.Run(fmt.Sprintf("in place %v", inPlace), func(t *testing.T) {
			l, _, client := twoHosts(t, Options{InPlace: inPlace})
			for _, from := range []*Host{client, l.Node} {
				for _, to := range podAddrs {
					for _, p := range everyProtocol {
						f := Flow{Protocol: p, From: from.Addr(to), To: netip.AddrPortFrom(to, 8080), Wait: patience}
						got := from.Connect(f)
						if got.Result != Served || got.Server != "pod" || got.Seen.Addr() != from.Addr(to) {
							t.Errorf("%s from %s to %s: %s", p, from.Name, to, got)
						}
					}
				}
			}
		})
	}
}

func TestConnectReportsOutcome(t *testing.T) {
	l, _, client := twoHosts(t, Options{})
	nft(t, l.Node, `
table inet lab {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		meta l4proto { tcp, udp, sctp } ip daddr 198.51.100.1 th dport 80 dnat ip to 10.244.1.2:8080
		meta l4proto { tcp, udp, sctp } ip6 daddr 2001:db8:51::1 th dport 80 dnat ip6 to [fd00:10:244:1::2]:8080
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ct status dnat masquerade fully-random
	}
	chain forward {
		type filter hook forward priority 0;
		meta l4proto { tcp, udp, sctp } th dport 81 reject
		meta l4proto { tcp, udp, sctp } th dport 82 drop
	}
}`)
	for _, vip := range []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:51::1")} {
		for _, p := range everyProtocol {
			f := Flow{Protocol: p, From: client.Addr(vip), To: netip.AddrPortFrom(vip, 80), Wait: patience}
			if got := client.Connect(f); got.Result != Served || got.Seen.Addr() != l.Node.Addr(vip) {
				t.Errorf("%s to %s: %s, want served with the node's address as the source", p, vip, got)
			}
			f.To = netip.AddrPortFrom(vip, 81)
			if got := client.Connect(f); got.Result != Refused {
				t.Errorf("%s to a rejected port of %s: %s", p, vip, got)
			}
			f.To, f.Wait = netip.AddrPortFrom(vip, 82), silence
			if got := client.Connect(f); got.Result != Silent {
				t.Errorf("%s to a dropped port of %s: %s", p, vip, got)
			}
		}
	}
}

func TestPortWithoutListenerResetsTCP(t *testing.T) {
	_, _, client := twoHosts(t, Options{})
	for _, to := range podAddrs {
		f := Flow{Protocol: plan.TCP, From: client.Addr(to), To: netip.AddrPortFrom(to, 9), Wait: patience}
		if got := client.Connect(f); got.Result != Reset {
			t.Errorf("TCP to %s: %s, want reset", f.To, got)
		}
	}
}

func TestUnusedAddressIsUnreachable(t *testing.T) {
	l, _, client := twoHosts(t, Options{})
	for _, from := range []*Host{client, l.Node} {
		for _, to := range []netip.Addr{netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:51::9")} {
			for _, p := range everyProtocol {
				f := Flow{Protocol: p, From: from.Addr(to), To: netip.AddrPortFrom(to, 80), Wait: patience}
				if got := from.Connect(f); got.Result != Unreachable {
					t.Errorf("%s from %s to %s: %s", p, from.Name, to, got)
				}
			}
		}
	}
}

func TestRefusalsAreNotRateLimited(t *testing.T) {
	l, _, client := twoHosts(t, Options{})
	nft(t, l.Node, `table inet lab { chain forward { type filter hook forward priority 0; th dport 81 reject; }; }`)
	outcomes := make(chan Outcome)
	for i := range 300 {
		go func() {
			to := podAddrs[i%2]
			f := Flow{
				Protocol: everyProtocol[i%3], From: client.Addr(to), To: netip.AddrPortFrom(to, 81),
				Wait: patience,
			}
			outcomes <- client.Connect(f)
		}()
	}
	for range 300 {
		if got := <-outcomes; got.Result != Refused {
			t.Errorf("one of 300 refused connections: %s", got)
		}
	}
}

func TestSessionKeepsClientPort(t *testing.T) {
	_, _, client := twoHosts(t, Options{})
	for _, p := range everyProtocol {
		to := podAddrs[0]
		s, outcome := client.Open(Flow{
			Protocol: p, From: client.Addr(to), To: netip.AddrPortFrom(to, 8080),
			Wait: patience,
		})
		if s == nil {
			t.Fatalf("%s: %s", p, outcome)
		}
		defer s.Close()
		var ports [3]uint16
		for i := range ports {
			got := s.Ask(patience)
			if got.Result != Served {
				t.Fatalf("%s, question %d: %s", p, i, got)
			}
			ports[i] = got.Seen.Port()
		}
		if ports[0] != ports[1] || ports[1] != ports[2] {
			t.Errorf("%s: one session came from ports %v", p, ports)
		}
	}
}

func TestDoAndCommandRunInHostNamespace(t *testing.T) {
	_, pod, _ := twoHosts(t, Options{})
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var inside string
	if err := pod.Do(func() (err error) {
		inside,
			err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := pod.Command(t.Context(), "readlink", "/proc/self/ns/net").Output(); err != nil ||
		strings.TrimSpace(string(out)) != inside {
		t.Errorf("a command runs in %s (%v), Do in %s", out, err, inside)
	}
	after, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil || after != own || inside == own {
		t.Errorf("namespaces: before %s, inside %s, after %s (%v)", own, inside, after, err)
	}
}

func TestLabCleanup(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		var left []string
		before, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("in place %v", inPlace), func(t *testing.T) {
			l, pod, client := twoHosts(t, Options{InPlace: inPlace})
			for _, h := range []*Host{l.Node, l.Gateway, pod, client} {
				left = append(left, groupOf(t, h))
				if h.Netns != "" {
					left = append(left, netnsDir+"/"+h.Netns)
				}
			}
			for _, path := range left {
				if _, err := os.Stat(path); err != nil {
					t.Error(err)
				}
			}
		})
		for _, path := range left {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("%s is still there (%v)", path, err)
			}
		}
		if after, err := os.ReadFile("/proc/self/cgroup"); err != nil || string(after) != string(before) {
			t.Errorf("control groups of the tests: %s (%v), and before %s", after, err, before)
		}
	}
}

func TestLabOfDeadProcessIsRemoved(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	stale := fmt.Sprintf("%s%d-1-node", namePrefix, dead.Process.Pid)
	if out, err := exec.Command("ip", "netns", "add", stale).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	g, err := cgroup.New(stale)
	if err != nil {
		t.Fatal(err)
	}
	New(t, Options{})
	for _, path := range []string{netnsDir + "/" + stale, g.Path()} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", path, err)
		}
	}
}
