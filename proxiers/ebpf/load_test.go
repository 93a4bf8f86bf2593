package ebpf

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

// traffic continuously opens connections to the first Service from the host and from another host, in both families,
// over TCP and UDP.
type traffic struct {
	done, failed atomic.Int64
	stop         chan struct{}
	wg           sync.WaitGroup
}

func (w *world) startTraffic() *traffic {
	l := &traffic{stop: make(chan struct{})}
	for _, network := range []string{"tcp", "udp"} {
		for _, f := range both {
			l.wg.Go(func() { l.repeat(w, func() error { return connectOnce(network, vip(f, 1)) }) })
			l.wg.Go(func() { l.repeat(w, func() error { return w.connectFrom(w.other, network, vip(f, 1)) }) })
		}
	}
	return l
}

func (l *traffic) repeat(w *world, connect func() error) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		l.done.Add(1)
		if err := connect(); err != nil {
			w.Log(err)
			l.failed.Add(1)
		}
	}
}

func (l *traffic) end() {
	close(l.stop)
	l.wg.Wait()
}

// isSlow reports whether the environment variable EBPF_SLOW is set. On an emulated board, 40 rounds of
// TestProgramsComeAndGo take more than 20 minutes, because the kernel verifies the programs in each round.
func isSlow() bool { return os.Getenv("EBPF_SLOW") != "" }

// rounds returns n, or a tenth of n, but at least 2, on a slow board.
func (w *world) rounds(n int) int {
	if isSlow() {
		return max(2, n/10)
	}
	return n
}

// minConnections returns the number in the environment variable EBPF_CONNECTIONS. If the variable is not set,
// minConnections returns n, or a tenth of n on a slow board.
func (w *world) minConnections(n int64) int64 {
	w.Helper()
	if isSlow() {
		n /= 10
	}
	if v := os.Getenv("EBPF_CONNECTIONS"); v != "" {
		if _, err := fmt.Sscan(v, &n); err != nil {
			w.Fatal(err)
		}
	}
	return n
}

// connectOnce opens a connection and exchanges one request and one response. connectOnce does not verify the peer
// address, because removing the programs changes the address.
func connectOnce(network string, to netip.AddrPort) error {
	c, err := net.DialTimeout(network, to.String(), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = answer(c)
	return err
}

func (w *world) connectFrom(h *netlab.Host, network string, to netip.AddrPort) error {
	c, err := dialFrom(h, network, 0, to)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = answer(c)
	return err
}

// applyFix applies the fix that edgeway doctor recommends for kernels that may deliver responses to the wrong socket.
func (w *world) applyFix() {
	w.Helper()
	if !mayMisdeliver() {
		return
	}
	w.Log(earlyDemux, "is 0, as the doctor says for this kernel: without, some connections over IPv6 fail")
	w.setEarlyDemux("0")
	w.Cleanup(func() { w.setEarlyDemux("1") }) // restore the sysctl, which may affect the whole machine
}

func (w *world) setEarlyDemux(value string) {
	w.Helper()
	if err := w.lab.Node.Sysctl("ipv4/tcp_early_demux", value); err != nil {
		w.Fatal(err)
	}
}

// No connection fails while the test removes and reattaches the programs, because nftables forwards the connections in
// the meantime.
func TestProgramsComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.applyFix()
	w.apply(w.service(1, w.endpoints...))
	least, rounds := w.minConnections(4000), w.rounds(40)
	l := w.startTraffic()
	var bySocket, byPacket uint64
	for i := 0; i < rounds || l.done.Load() < least; i++ {
		n, _ := w.connectionCounts()
		bySocket, byPacket = bySocket+n, byPacket+w.tcConnections()
		if err := unpinAll(w.dir); err != nil {
			t.Fatal(err)
		}
		w.proxier.shortcuts.links.close()
		w.proxier.shortcuts.mu.Lock()
		w.proxier.shortcuts.attacher.detachAll()
		w.proxier.shortcuts.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		w.sync(proxiers.NewChange(nil, w.plan))
		time.Sleep(20 * time.Millisecond)
	}
	l.end()
	t.Logf("%d connections, %d by socket, %d by packet, %d failed", l.done.Load(), bySocket, byPacket, l.failed.Load())
	if l.failed.Load() > 0 || bySocket == 0 || byPacket == 0 || bySocket+byPacket >= uint64(l.done.Load()) {
		t.Error("not as it should be")
	}
}

// The daemon restarts while the maps hold many Services. Every second restart simulates an update from another version,
// whose programs the daemon replaces.
func TestRestartUnderLoad(t *testing.T) {
	w := newWorld(t)
	services := 1000
	if os.Getenv("EBPF_CONNECTIONS") != "" {
		services = 10_000
	}
	// beside holds all generated Services except the one with the first Service's address.
	beside := slices.Delete(plantest.ManyServices(services, 5), 1, 2)
	w.apply(w.service(1, w.endpoints...), beside)
	w.needsPackets()
	least, rounds := w.minConnections(2000), w.rounds(4)
	sent, _ := w.connectionCounts()
	packets := w.tcConnections()
	l := w.startTraffic()
	for i := 0; i < rounds || l.done.Load() < least; i++ {
		next := w.plan
		w.stop()
		if i%2 == 1 {
			if err := os.Rename(programsDir(w.dir),
				filepath.Join(w.dir, layout, programsPrefix+"earlier")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Millisecond)
		w.start()
		w.sync(proxiers.NewChange(nil, next))
		w.needsPackets()
		time.Sleep(20 * time.Millisecond)
	}
	l.end()
	now, _ := w.connectionCounts()
	sent, packets = now-sent, w.tcConnections()-packets
	t.Logf("%d connections beside %d Services, %d by socket, %d by packet, %d failed", l.done.Load(), services, sent,
		packets, l.failed.Load())
	if l.failed.Load() > 0 || sent == 0 || packets == 0 {
		t.Error("not as it should be")
	}
}
