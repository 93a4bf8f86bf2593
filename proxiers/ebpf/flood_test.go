package ebpf

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// If a firewall drops a flood of SYNs, the SYNs do not fill the connection-tracking table, and Edgeway still serves
// other clients.
func TestFloodOfSYNs(t *testing.T) { flood(t, 4*time.Second) }

// TestNightlyFloodOfSYNs sends SYNs for half the lifetime of a SYN's connection-tracking entry.
func TestNightlyFloodOfSYNs(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute; the nightly run has it")
	}
	flood(t, time.Minute)
}

const (
	floodRate    = 5000 // SYNs per second
	floodSources = "198.18.0.0/15"
)

func flood(t *testing.T, lasts time.Duration) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	const rules = "add table inet firewall; add chain inet firewall forward { type filter hook forward priority 0; }; add counter inet firewall dropped; " +
		"add rule inet firewall forward ip saddr " + floodSources + " counter name dropped drop"
	w.nft(rules)
	t.Cleanup(func() { w.nft("delete table inet firewall") })

	stop, served := make(chan struct{}), make(chan error, 1)
	var asked atomic.Int64
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				served <- nil
				return
			case <-time.After(50 * time.Millisecond):
				err = w.connectFrom(w.other, "tcp", vip(plan.IPv4, 1))
				asked.Add(1)
			}
		}
		served <- err
	}()
	before, start := w.tracked(), time.Now()
	sent := w.sendSYNs(w.other, lasts)
	took := time.Since(start)
	most, entries := int(tcRate*(took.Seconds()+2))+int(3*asked.Load()), w.tracked()-before
	close(stop)
	t.Logf("%d SYNs in %s: %d entries, of %d within the rate; %d connections of another client; firewall: %s", sent,
		took.Round(time.Millisecond), entries, most,
		asked.Load(), strings.Join(strings.Fields(w.nft("list counter inet firewall dropped")), " "))
	if err := <-served; err != nil {
		t.Errorf("another client: %v", err)
	}
	if entries > most {
		t.Errorf("the flood has %d entries in connection tracking, and at most %d are within the rate", entries, most)
	}
	if w.counted(leftRate) == 0 {
		t.Error("the flood was within the rate")
	}
}

func (w *world) nft(commands string) string {
	w.Helper()
	out, err := w.lab.Node.Command(context.WithoutCancel(w.Context()), "nft", commands).CombinedOutput()
	if err != nil {
		w.Fatalf("nft %s: %v: %s", commands, err, out)
	}
	return string(out)
}

func (w *world) tracked() (n int) {
	w.Helper()
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// sendSYNs sends SYNs to the first Service, each from a different address and port, and returns how many it sent. One
// CPU sends all the SYNs, and therefore also runs the tc program for them.
func (w *world) sendSYNs(h *netlab.Host, lasts time.Duration) (n int) {
	w.Helper()
	err := h.Do(func() error {
		var all, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return err
		}
		defer func() { _ = unix.SchedSetaffinity(0, &all) }()
		for cpu := range runtime.NumCPU() * 8 {
			if all.IsSet(cpu) {
				one.Set(cpu)
				break
			}
		}
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		to := vip(plan.IPv4, 1)
		for start := time.Now(); time.Since(start) < lasts; time.Sleep(5 * time.Millisecond) {
			for due := int(time.Since(start).Seconds() * floodRate); n < due; n++ {
				if err := unix.Sendto(fd, syn(n, to.Addr().As4(), to.Port()), 0,
					&unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
					return fmt.Errorf("SYN %d: %w", n, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// syn returns a SYN without the IPv4 header checksum, which the kernel adds.
func syn(n int, to [4]byte, port uint16) []byte {
	from := [4]byte{198, 18, byte(n >> 8), byte(n)}
	b := []byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, unix.IPPROTO_TCP, 0, 0}
	b = append(append(b, from[:]...), to[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(1024+n>>16))
	b = binary.BigEndian.AppendUint16(b, port)
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, 2, 0xff, 0xff, 0, 0, 0, 0)
	sum := uint32(unix.IPPROTO_TCP + 20) // the pseudo header, which also includes the addresses
	for i := 12; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[36:], ^uint16(sum))
	return b
}
