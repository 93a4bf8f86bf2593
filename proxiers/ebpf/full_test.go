package ebpf

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/plan"
)

// If the connection-tracking table is full, a new connection waits until the table has space again, and the kernel does
// not deliver the connection's packets to the host itself. Open connections continue.
func TestPacketsWithFullTracking(t *testing.T) {
	if os.Getenv("EBPF_FULL_TRACKING") == "" {
		t.Skip("the limit is that of the whole machine (test/vm/jobs runs it)")
	}
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	var running []net.Conn
	for range 3 {
		c, err := dialFrom(w.other, "tcp", 0, vip(plan.IPv4, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		running = append(running, c)
	}
	before := w.setTrackingMax("2")
	defer w.setTrackingMax(before)
	refused := w.counted(leftTracking) + w.counted(leftRate)
	got := make(chan error, 1)
	go func() {
		c, err := dialFrom(w.other, "tcp", 0, vip(plan.IPv4, 1))
		if err == nil {
			_, err = answer(c)
			_ = c.Close()
		}
		got <- err
	}()
	for deadline := time.Now().Add(patience); w.counted(leftTracking)+
		w.counted(leftRate) == refused; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("connection tracking refuses nothing")
		}
	}
	select {
	case err := <-got:
		t.Fatalf("a connection got an answer without an entry: %v", err)
	default:
	}
	for _, c := range running {
		if _, err := answer(c); err != nil {
			t.Errorf("a connection that runs: %v", err)
		}
	}
	w.setTrackingMax(before)
	if err := <-got; err != nil {
		t.Errorf("a connection that waited for room: %v", err)
	}
}

// setTrackingMax sets the maximum number of tracked connections per network namespace, and returns the previous value.
// A process can set the maximum only in the initial network namespace.
func (w *world) setTrackingMax(n string) (before string) {
	w.Helper()
	const file = "/proc/sys/net/netfilter/nf_conntrack_max"
	out, err := exec.Command("nsenter", "--net=/proc/1/ns/net", "sh", "-c",
		"cat "+file+"; echo "+n+" >"+file).CombinedOutput()
	if err != nil {
		w.Fatalf("%s: %v: %s", file, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *world) counted(c counter) uint64 {
	w.Helper()
	counts, err := w.proxier.shortcuts.counts()
	if err != nil {
		w.Fatal(err)
	}
	return counts[c]
}
