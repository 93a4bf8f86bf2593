package links

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/rtnl"
	"edgeway/test/netlab"
)

func TestMain(m *testing.M) { os.Exit(netlab.Isolate(m)) }

const patience = 20 * time.Second

// After the first call to List, Links learns of new devices, names and masters from notifications alone.
func TestLinksFollowEvents(t *testing.T) {
	lab := netlab.New(t, netlab.Options{InPlace: true})
	var changes atomic.Int32
	l, err := Open(proxiers.Env{Logger: slog.New(slog.DiscardHandler)}, func() { changes.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() { l.Close(); group.Wait() })
	if err := l.Watch(&group); err != nil {
		t.Fatal(err)
	}
	listed := func() string {
		devices, err := l.List()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range devices {
			if d.Master != 0 {
				d.Name += " of " + devices[d.Master].Name
			}
			names = append(names, d.Name)
		}
		slices.Sort(names)
		return strings.Join(names, ", ")
	}
	if got := listed(); got != "eth0" {
		t.Fatalf("at first %q", got)
	}
	l.kernel.Close() // causes further requests to fail
	for _, step := range []struct {
		ip, want string
		changes  int32 // minimum number
	}{
		{"link add pod1 type veth peer name other1", "eth0, other1, pod1", 1},
		{"link set pod1 up", "eth0, other1, pod1", 0},
		{"link set pod1 down", "eth0, other1, pod1", 0},
		{"link set pod1 name cali1", "cali1, eth0, other1", 1},
		{"link add br0 type bridge", "br0, cali1, eth0, other1", 1},
		{"link set cali1 master br0", "br0, cali1 of br0, eth0, other1", 1},
		{"link del other1", "br0, eth0", 0},
	} {
		before := changes.Load()
		if out, err := lab.Node.Command(t.Context(), "ip", strings.Fields(step.ip)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", step.ip, err, out)
		}
		for deadline := time.Now().Add(patience); listed() != step.want ||
			changes.Load()-before < step.changes; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after ip %s: %q, %d changes", step.ip, listed(), changes.Load()-before)
			}
		}
		time.Sleep(2 * rtnl.BatchTime)
		if n := changes.Load() - before; step.changes == 0 && n > 0 {
			t.Errorf("after ip %s: %d changes", step.ip, n)
		}
	}
}
