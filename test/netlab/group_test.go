package netlab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
)

// groupOf returns the host's control group, or skips the test if the lab cannot create control groups.
func groupOf(t *testing.T, h *Host) string {
	t.Helper()
	if h.Cgroup() == "" {
		t.Skip("the hosts have no control groups")
	}
	return h.Cgroup()
}

// TestSocketsAreInControlGroupOfHost verifies that the sockets of a host's servers and clients, and the programs that
// run on the host, belong to the host's control group.
func TestSocketsAreInControlGroupOfHost(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		t.Run(fmt.Sprintf("in place %v", inPlace), func(t *testing.T) {
			l, pod, client := twoHosts(t, Options{InPlace: inPlace})
			if err := l.Node.Serve("node", netip.AddrPortFrom(NodeAddr4, 8080), everyProtocol...); err != nil {
				t.Fatal(err)
			}
			for _, from := range []*Host{client, l.Node} {
				for _, p := range everyProtocol {
					s, outcome := from.Open(Flow{
						Protocol: p, From: from.Addr(podAddrs[0]),
						To: netip.AddrPortFrom(podAddrs[0], 8080), Wait: patience,
					})
					if s == nil {
						t.Fatal(outcome)
					}
					defer s.Close()
				}
			}
			groups := map[string]bool{}
			for h, want := range map[*Host]int{pod: 6, client: 2, l.Node: 4} { // 2 of the 6 are accepted connections
				groups[groupOf(t, h)] = true
				own, others, err := h.Sockets(t.Context())
				if err != nil || own < want || len(others) > 0 {
					t.Errorf("%s: %d sockets in %s, want %d; others: %q (%v)", h.Name, own, h.Cgroup(), want, others,
						err)
				}
				out, err := h.Command(t.Context(), "cat", "/proc/self/cgroup").Output()
				if name := "0::/" + filepath.Base(h.Cgroup()); err != nil ||
					!slices.Contains(strings.Split(string(out), "\n"), name) {
					t.Errorf("a command on %s is in %q (%v), want %s", h.Name, out, err, name)
				}
			}
			if len(groups) != 3 {
				t.Errorf("three hosts have the groups %v", groups)
			}
		})
	}
}

// TestSocketsOfOtherGroupsAreListed verifies that Sockets lists a socket in the host's namespace if a process outside
// the host's control group opened it.
func TestSocketsOfOtherGroupsAreListed(t *testing.T) {
	_, pod, _ := twoHosts(t, Options{})
	groupOf(t, pod)
	var closer interface{ Close() error }
	if err := pod.Do(func() (err error) {
		closer, err = serve("stranger", netip.AddrPortFrom(podAddrs[0], 99), plan.UDP)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	if _, others, err := pod.Sockets(t.Context()); err != nil || len(others) != 1 {
		t.Errorf("sockets of other groups: %q (%v), want the one that is there", others, err)
	}
}

func TestMissingControlGroupIsLogged(t *testing.T) {
	l := &Lab{t: t, prefix: "no such folder/"}
	h := &Host{Name: "pod", lab: l}
	t.Setenv("CI", "true")
	if err := h.makeGroup(); err == nil || !strings.Contains(err.Error(), "no such folder/pod") {
		t.Errorf("in continuous integration: error %v", err)
	}
	t.Setenv("CI", "")
	if err := h.makeGroup(); err != nil || h.Cgroup() != "" || h.inGroup() != nil {
		t.Errorf("elsewhere: group %q, error %v", h.Cgroup(), err)
	}
}

// TestUnboundSocketUsesKernelSourceAddress connects to another host and to the node's own addresses. If the destination
// address belongs to the node, the source address must be the same address. If the destination address belongs to
// another host, the source address must be RouterAddr4 or NodeAddr6.
func TestUnboundSocketUsesKernelSourceAddress(t *testing.T) {
	l, _, _ := twoHosts(t, Options{})
	own := netip.MustParseAddr("192.0.2.11")
	l.AddNodeAddr("eth0", own)
	for _, at := range []netip.Addr{own, NodeAddr4, NodeAddr6} {
		if err := l.Node.Serve("node", netip.AddrPortFrom(at, 8080), everyProtocol...); err != nil {
			t.Fatal(err)
		}
	}
	for to, want := range map[netip.Addr]netip.Addr{
		podAddrs[0]: RouterAddr4, podAddrs[1]: NodeAddr6, own: own, NodeAddr4: NodeAddr4, NodeAddr6: NodeAddr6,
	} {
		for _, p := range everyProtocol {
			got := l.Node.Connect(Flow{Protocol: p, To: netip.AddrPortFrom(to, 8080), Wait: patience})
			if got.Result != Served || got.Seen.Addr() != want {
				t.Errorf("%s to %s: %s, want %s as the source", p, to, got, want)
			}
		}
	}
}

// TestKilledProcessIsReported kills a host's process. The error from the next connection must name the killed process.
func TestKilledProcessIsReported(t *testing.T) {
	_, _, client := twoHosts(t, Options{})
	raw, err := os.ReadFile(filepath.Join(groupOf(t, client), "cgroup.procs"))
	if err != nil || len(raw) != 0 {
		t.Fatalf("processes of a host that has made no socket: %q (%v)", raw, err)
	}
	f := Flow{Protocol: plan.TCP, From: clientAddrs[0], To: netip.AddrPortFrom(podAddrs[0], 8080), Wait: patience}
	if got := client.Connect(f); got.Result != Served {
		t.Fatal(got)
	}
	if err := os.WriteFile(filepath.Join(client.Cgroup(), "cgroup.kill"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if got := client.Connect(f); got.Result != Failed || !strings.Contains(got.Problem, "process of client") {
		t.Errorf("after its end: %s", got)
	}
	client.stop = nil // stop would report the kill
}
