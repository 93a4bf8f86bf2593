package netlab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

const (
	// peerVariable is the environment variable that marks a host's process.
	peerVariable = "NETLAB_PEER"
	peerFD       = 3 // the first of the process's extra files
	peerService  = "Peer"
)

// PeerMain does nothing unless a lab started this process for a host. In a host's process, PeerMain serves the lab and
// never returns. TestMain must call PeerMain first, unless TestMain calls Isolate.
func PeerMain() {
	if os.Getenv(peerVariable) == "" {
		return
	}
	conn, err := net.FileConn(os.NewFile(peerFD, "lab"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "process of a host:", err)
		os.Exit(1)
	}
	servePeer(conn)
	os.Exit(0)
}

// servePeer serves the lab's requests concurrently until the lab closes the connection.
func servePeer(conn io.ReadWriteCloser) {
	p := &peer{open: map[int]io.Closer{}}
	server := rpc.NewServer()
	if err := server.RegisterName(peerService, p); err != nil {
		panic(err) // an error means that a method of peer has a wrong signature
	}
	server.ServeConn(conn)
	p.closeAll()
}

// startPeer starts the host's process in the host's namespace and control group. If the host is the node of a lab with
// InPlace, the tests' own process serves the requests.
func (h *Host) startPeer() (*rpc.Client, error) {
	if h.Netns == "" {
		far, near := net.Pipe()
		ended := make(chan struct{})
		go func() { servePeer(far); close(ended) }()
		client := rpc.NewClient(near)
		h.stop = func() error { err := client.Close(); <-ended; return err }
		return client, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	near, far, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = far.Close() }()
	// A host needs only one CPU. With more CPUs, the hosts' threads would only compete with each other.
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), peerVariable+"=1", "GOMAXPROCS=1")
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{far}
	cmd.SysProcAttr = h.inGroup()
	if err := h.Do(cmd.Start); err != nil {
		return nil, errors.Join(err, near.Close())
	}
	client := rpc.NewClient(near)
	h.stop = func() error { return errors.Join(client.Close(), cmd.Wait()) }
	if err := client.Call(peerService+".Close", 0, &struct{}{}); err != nil {
		return nil, fmt.Errorf("%w (TestMain must call netlab.PeerMain)", err)
	}
	return client, nil
}

// socketPair returns the two ends of a connection. far is the end for another process.
func socketPair() (near net.Conn, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	mine := os.NewFile(uintptr(fds[0]), "lab")
	defer func() { _ = mine.Close() }() // near uses a duplicate of this file descriptor
	far = os.NewFile(uintptr(fds[1]), "host")
	if near, err = net.FileConn(mine); err != nil {
		return nil, nil, errors.Join(err, far.Close())
	}
	return near, far, nil
}

func (h *Host) call(method string, question, answer any) error {
	client, err := h.peer()
	if err == nil {
		err = client.Call(peerService+"."+method, question, answer)
	}
	if err != nil {
		return fmt.Errorf("process of %s: %w", h.Name, err)
	}
	return nil
}

// peer holds a host's sockets. The lab calls peer's exported methods by RPC.
type peer struct {
	mu   sync.Mutex
	last int
	open map[int]io.Closer
}

// Request asks a host to open a connection, to send another message over a connection, or to start a server.
type Request struct {
	Flow
	// Port is the source port for SCTP, and for a socket that is bound to From.
	Port uint16
	// ID identifies the connection or server from an earlier Reply.
	ID     int
	Server string
	At     netip.AddrPort
}

// Reply is a host's response to a Request.
type Reply struct {
	Outcome Outcome
	// ID identifies the open connection or server. If ID is 0, the connection or server is not open.
	ID int
	// InUse reports whether the source port was already in use.
	InUse bool
}

func (p *peer) Connect(q Request, r *Reply) error {
	s := openSocket(q, r)
	if s == nil {
		return nil
	}
	defer func() { _ = s.Close() }()
	wait := q.Wait
	if q.Protocol == plan.TCP && q.ReplyWait > 0 {
		wait = q.ReplyWait
	}
	r.Outcome = s.askRepeatedly(wait)
	return nil
}

func (p *peer) Open(q Request, r *Reply) error {
	if s := openSocket(q, r); s != nil {
		r.ID = p.keep(s)
	}
	return nil
}

func (p *peer) Ask(q Request, r *Reply) error {
	p.mu.Lock()
	s, ok := p.open[q.ID].(*socket)
	p.mu.Unlock()
	if !ok {
		return errors.New("the connection is closed")
	}
	r.Outcome = s.askRepeatedly(q.Wait)
	return nil
}

func (p *peer) Serve(q Request, r *Reply) error {
	server, err := serve(q.Server, q.At, q.Protocol)
	if err == nil {
		r.ID = p.keep(server)
	}
	return err
}

func (p *peer) Close(id int, _ *struct{}) error {
	p.mu.Lock()
	c := p.open[id]
	delete(p.open, id)
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Close()
}

func (p *peer) keep(c io.Closer) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.open[p.last] = c
	return p.last
}

func (p *peer) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		_ = c.Close()
	}
	clear(p.open)
}

// openSocket opens a socket for a request. If the connection fails, openSocket returns nil and stores the reason in r.
func openSocket(q Request, r *Reply) *socket {
	s, err := newSocket(q.Flow, q.Port)
	if err != nil {
		r.InUse = errors.Is(err, unix.EADDRINUSE)
		r.Outcome = failed(fmt.Errorf("socket for %s from %s: %w", q.Protocol, q.From, err))
		return nil
	}
	if q.Protocol == plan.TCP {
		if r.Outcome = s.awaitEstablished(q.Wait); r.Outcome.Result != Served {
			_ = s.Close()
			return nil
		}
	}
	return s
}

// askRepeatedly sends a request and waits for the server's response. Like a DNS resolver, askRepeatedly repeats the
// request every second, so a single dropped packet does not count as a failure.
func (s *socket) askRepeatedly(wait time.Duration) Outcome {
	deadline := time.Now().Add(wait)
	for repeats := 0; ; repeats++ {
		next := time.Now().Add(time.Second)
		if next.After(deadline) || s.flow.Protocol == plan.TCP {
			next = deadline
		}
		outcome := s.ask(next)
		outcome.Repeats = repeats
		if outcome.Result != Silent || next.Equal(deadline) {
			return outcome
		}
	}
}
