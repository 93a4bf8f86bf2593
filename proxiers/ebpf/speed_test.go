package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

type speedPath struct {
	name string
	to   netip.AddrPort
	// settings holds the values that the test writes to the programs' settings map before a measurement.
	settings socketsSettings
}

// measurement describes how to time a connection with one request.
type measurement struct {
	name string
	port uint16
	ask  func(to netip.AddrPort) (time.Duration, error)
}

// TestConnectionSpeed measures how long a connection with one request takes on each path in turn, while the maps hold
// many Services. Unless EBPF_SPEED is set, the test verifies only that the measurements work, and ignores the measured
// ratios.
func TestConnectionSpeed(t *testing.T) {
	n, services := 20, 100
	_, forPeople := os.LookupEnv("EBPF_SPEED")
	if forPeople {
		n, services = 4000, 10_000
	}
	w := newWorld(t)
	listening := 0
	measurements := []measurement{
		{"two programs", endpointPort, askProgram},
		{"one thread", 9090, func(to netip.AddrPort) (time.Duration, error) { return askThrough(to, listening) }},
	}
	list := plantest.ManyServices(services, 5)
	to := map[measurementKey]netip.AddrPort{}
	for i, m := range measurements {
		for _, svc := range w.service(200+i, w.endpoints[0]) {
			f, pool := &svc.Frontends[0], svc.Pools[plan.ClusterPool]
			if svc.Family == plan.IPv4 {
				f.Addr = netip.AddrFrom4([4]byte{10, 99, 0, byte(1 + i)})
			}
			pool[0].Addr = netip.AddrPortFrom(pool[0].Addr.Addr(), m.port)
			to[measurementKey{svc.Family, m.name}] = netip.AddrPortFrom(f.Addr, f.Port)
			list = append(list, svc)
		}
	}
	node := *plantest.Node()
	node.HostAddrs = w.lab.Node.Addrs
	w.proxier.shortcuts.tcRate = 1e9 // no rate limit
	w.sync(proxiers.NewChange(nil, plantest.Plan(&node, list...)))
	w.needsPackets()
	on, off := w.proxier.shortcuts.config, socketsSettings{}
	for _, f := range both {
		listening = w.listen(netip.AddrPortFrom(w.endpoints[0].Addr(vip(f, 1).Addr()), 9090))
		for _, m := range measurements {
			service := to[measurementKey{f, m.name}]
			direct := netip.AddrPortFrom(w.endpoints[0].Addr(service.Addr()), m.port)
			for _, from := range []*netlab.Host{w.lab.Node, w.other} {
				medians := w.measure(from, n, m, []speedPath{
					{"direct", direct, on},
					{"BPF", service, on},
					{"nftables", service, off},
				})
				bpf, nft := ratio(medians[1], medians[0]), ratio(medians[1], medians[2])
				t.Logf("%s from %s, %s: direct %v, BPF %v, nftables %v: BPF is %.3f of direct, %.3f of nftables", f,
					from.Name, m.name, medians[0], medians[1], medians[2], bpf, nft)
				switch {
				case !forPeople:
				case from == w.lab.Node && (bpf > 1.03 || nft > 0.90):
					t.Error("the host's connections: at most 1.03 of direct and 0.90 of nftables are wanted")
				case from != w.lab.Node && nft > 1:
					t.Error("connections of other hosts are slower than with nftables")
				}
			}
		}
	}
}

type measurementKey struct {
	family plan.Family
	name   string
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func (w *world) measure(from *netlab.Host, n int, m measurement, ways []speedPath) (medians []time.Duration) {
	w.Helper()
	took := make([][]time.Duration, len(ways))
	if err := from.Do(func() error {
		for range n {
			for i, way := range ways {
				if err := w.proxier.shortcuts.configure(way.settings); err != nil {
					return err
				}
				t, err := m.ask(way.to)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, way.name, err)
				}
				took[i] = append(took[i], t)
			}
		}
		return nil
	}); err != nil {
		w.Fatal(err)
	}
	for _, list := range took {
		slices.Sort(list)
		medians = append(medians, list[len(list)/2])
	}
	return medians
}

// askProgram sends a request to another process. The kernel spends most of the measured time waking the two processes.
func askProgram(to netip.AddrPort) (time.Duration, error) {
	start := time.Now()
	err := connectOnce("tcp", to)
	return time.Since(start), err
}

func (w *world) listen(at netip.AddrPort) (l int) {
	w.Helper()
	if err := w.endpoints[0].Do(func() (err error) {
		if l, err = tcpSocket(at.Addr()); err != nil {
			return err
		}
		return errors.Join(unix.Bind(l, sockaddr(at)), unix.Listen(l, 16))
	}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = unix.Close(l) })
	return l
}

func tcpSocket(of netip.Addr) (int, error) {
	family := unix.AF_INET
	if of.Is6() {
		family = unix.AF_INET6
	}
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// askThrough opens and accepts a connection, and sends a request and a response over it. One thread runs the client and
// the server and never blocks, so the time depends only on the kernel. At the end, both sockets reset the connection.
func askThrough(to netip.AddrPort, listening int) (took time.Duration, err error) {
	client, err := tcpSocket(to.Addr())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, reset(client)) }()
	peer, text := sockaddr(to), make([]byte, 16)
	start := time.Now()
	if err := unix.Connect(client, peer); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return 0, err
	}
	server, err := soon(func() (int, error) {
		fd, _, err := unix.Accept4(listening, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return fd, err
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, reset(server)) }()
	for _, way := range [][2]int{{client, server}, {server, client}} {
		if _, err := soon(func() (int, error) { return unix.Write(way[0], text) }); err != nil {
			return 0, err
		}
		if _, err := soon(func() (int, error) { return unix.Read(way[1], text) }); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func soon(ask func() (int, error)) (n int, err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if n, err = ask(); !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
	return 0, err
}

func reset(fd int) error {
	return errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.Close(fd))
}
