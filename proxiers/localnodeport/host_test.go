package localnodeport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// TestMain runs the tests in a child process with its own network namespace, because the relay's goroutines run on
// several threads.
func TestMain(m *testing.M) { os.Exit(netlab.Isolate(m)) }

type sockets struct {
	mu       sync.Mutex
	open     map[netip.AddrPort]*os.File
	unasked  map[netip.AddrPort]bool
	listened []netip.AddrPort
	released []netip.AddrPort
}

func (s *sockets) Listen(at netip.AddrPort) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listened = append(s.listened, at)
	delete(s.unasked, at)
	if f := s.open[at]; f != nil {
		return f, nil
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f, err := l.File()
	s.open[at] = f
	return f, err
}

func (s *sockets) Release(at netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = append(s.released, at)
	delete(s.unasked, at)
	if l := s.open[at]; l != nil {
		_ = l.Close()
		delete(s.open, at)
	}
}

func (s *sockets) Unused() (list []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.unasked {
		list = append(list, at)
	}
	return list
}

// addInherited adds a socket as if the process had inherited it from a service manager.
func (s *sockets) addInherited(t *testing.T, at netip.AddrPort) {
	t.Helper()
	if _, err := s.Listen(at); err != nil {
		t.Fatal(err)
	}
	s.unasked[at] = true
	s.listened = nil
}

func (s *sockets) calls() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("listen %v, release %v", s.listened, s.released)
	s.listened, s.released = nil, nil
	return text
}

type world struct {
	*Proxier
	t       *testing.T
	sockets *sockets
	log     *lockedBuffer
	plan    *plan.Plan
}

func newWorld(t *testing.T) *world {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, log: &lockedBuffer{},
		sockets: &sockets{open: map[netip.AddrPort]*os.File{}, unasked: map[netip.AddrPort]bool{}},
	}
	w.Proxier = w.newProxier()
	t.Cleanup(func() {
		_ = w.Close()
		for _, l := range w.sockets.open {
			_ = l.Close()
		}
	})
	return w
}

func (w *world) newProxier() *Proxier {
	return New(Options{
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(w.log, w.t.Output()), nil)), Sockets: w.sockets,
		OnPanic: func(err error) { w.t.Error(err) },
	})
}

func (w *world) apply(services ...*plan.ServicePort) {
	w.t.Helper()
	w.applyTo(&plan.Plan{Node: &plan.Node{LoopbackAddrs: []netip.Addr{
		netip.MustParseAddr("127.0.0.1"),
		netip.IPv6Loopback(),
	}}}, services...)
}

func (w *world) applyTo(next *plan.Plan, services ...*plan.ServicePort) {
	w.t.Helper()
	slices.SortFunc(services, (*plan.ServicePort).Compare)
	next.Services = services
	if err := w.Apply(w.t.Context(), proxiers.NewChange(w.plan, next)); err != nil {
		w.t.Fatal(err)
	}
	w.plan = next
}

// maintain runs the deferred work that becomes due within the given time.
func (w *world) maintain(span time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if due := w.Due(); due.IsZero() || due.After(time.Now()) {
			continue
		}
		if err := w.Maintain(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) stats(listeners4, listeners6 int) {
	w.t.Helper()
	got := w.Stats().Listeners
	if got[plan.IPv4] != listeners4 || got[plan.IPv6] != listeners6 {
		w.t.Errorf("listeners %v, want %d of IPv4 and %d of IPv6", got, listeners4, listeners6)
	}
}

// service returns a ServicePort with one NodePort. The endpoints must be sorted.
func service(name string, nodePort uint16, endpoints ...string) *plan.ServicePort {
	svc := &plan.ServicePort{
		Name: plan.ServicePortName{Namespace: "default", Name: name, Protocol: plan.TCP}, Family: plan.IPv4,
		Frontends: []plan.Frontend{{Kind: plan.NodePort, Port: nodePort}},
	}
	for _, e := range endpoints {
		svc.Pools[plan.ClusterPool] = append(svc.Pools[plan.ClusterPool], plan.Endpoint{Addr: addrPort(e)})
		svc.Family = plan.FamilyOf(addrPort(e).Addr())
	}
	svc.Seal()
	return svc
}

// serve starts a server that responds to each line with its own address.
func serve(t *testing.T, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					_, _ = io.WriteString(conn, at+"\n")
				}
			}()
		}
	}()
}

func ask(conn net.Conn) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "who\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func dial(at string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 30 * time.Second}).DialContext(context.Background(), "tcp", at)
}

func who(at string) (string, error) {
	conn, err := dial(at)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return ask(conn)
}

func answers(t *testing.T, at, endpoint string) {
	t.Helper()
	if got, err := who(at); err != nil || got != endpoint {
		t.Errorf("%s is answered by %q (%v), want %q", at, got, err, endpoint)
	}
}

func refuses(t *testing.T, at string) {
	t.Helper()
	if got, err := who(at); !isRefusal(err) {
		t.Errorf("%s is answered by %q (%v), want a refusal", at, got, err)
	}
}

func isRefusal(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && strings.Contains(err.Error(), "refused")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), text)
}
