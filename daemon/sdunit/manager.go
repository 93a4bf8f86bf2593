// Package sdunit is the daemon's side of its systemd unit: it reports readiness and status
// (sd_notify), notifies the watchdog while the sync loop is alive, and takes over and keeps listening
// sockets (socket units and the fd store).
//
// Without systemd, that is without NOTIFY_SOCKET and LISTEN_FDS, it only opens
// and closes sockets.
package sdunit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"edgeway/proxiers/contain"
)

// sendTimeout bounds the wait for a service manager that does not read.
const sendTimeout = 2 * time.Second

var errDeaf = errors.New("the service manager does not read its socket")

// Manager sends notifications to the service manager. It logs the first of several failures and returns none.
type Manager struct {
	logger *slog.Logger
	// sending has room for the datagram that is being sent, so that datagrams stay in order.
	sending chan struct{}
	// deaf reports that sending the current datagram takes longer than sendTimeout.
	deaf atomic.Bool

	mu     sync.Mutex
	failed bool
}

// NewManager returns a Manager that sends to the address in NOTIFY_SOCKET. It does not connect.
func NewManager(logger *slog.Logger) *Manager {
	return &Manager{logger: logger, sending: make(chan struct{}, 1)}
}

// ExtendStart asks the service manager again and again for more time to start, until stop is called or limit has passed:
// before a Notifier runs, a slow board checks for minutes whether the host has what the configuration needs, and
// systemd would end the start after TimeoutStartSec=. After limit, the start has extendBy left.
func (m *Manager) ExtendStart(ctx context.Context, limit time.Duration) (stop func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = contain.Call(func() error { // a panic only leaves the start with the time that it has
			m.extend(ctx)
			return nil
		})
	}()
	return func() {
		cancel()
		<-done
	}
}

func (m *Manager) extend(ctx context.Context) {
	for ctx.Err() == nil {
		m.send(extension())
		select {
		case <-ctx.Done():
		case <-time.After(extendEvery):
		}
	}
}

// extension requests extendBy more time for the start.
func extension() string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extendBy.Microseconds()) }

// present reports whether there is a service manager to notify.
func (m *Manager) present() bool { return address() != "" }

func address() string { return os.Getenv("NOTIFY_SOCKET") }

// send sends the assignments in one datagram and reports whether the service manager received it.
func (m *Manager) send(assignments ...string) bool {
	return m.deliver(func() error {
		_, err := sd.SdNotify(false, strings.Join(assignments, "\n"))
		return err
	})
}

// sendSocket sends assignments and a copy of the descriptor of a socket.
func (m *Manager) sendSocket(socket syscall.Conn, assignments ...string) {
	m.deliver(func() error { return sendSocket(socket, []byte(strings.Join(assignments, "\n"))) })
}

// deliver calls send and waits for at most sendTimeout, because SdNotify of go-systemd (22.7) waits without limit.
// It does not wait at all for a manager that did not read the previous datagram in time.
func (m *Manager) deliver(send func() error) bool {
	if !m.present() {
		return false
	}
	timeout := time.NewTimer(sendTimeout)
	defer timeout.Stop()
	if !m.begin(timeout.C) {
		m.note(errDeaf)
		return false
	}
	sent := make(chan error, 1)
	go func() {
		sent <- contain.Call(send)
		m.deaf.Store(false)
		<-m.sending
	}()
	select {
	case err := <-sent:
		m.note(err)
		return err == nil
	case <-timeout.C:
		m.deaf.Store(true)
		m.note(errDeaf)
		return false
	}
}

// begin waits for the previous datagram.
func (m *Manager) begin(timeout <-chan time.Time) bool {
	select {
	case m.sending <- struct{}{}:
		return true
	default:
	}
	if m.deaf.Load() {
		return false
	}
	select {
	case m.sending <- struct{}{}:
		return true
	case <-timeout:
		return false
	}
}

// sendSocket exists because go-systemd (22.7) has no function for it.
func sendSocket(socket syscall.Conn, text []byte) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: address()})
	if err != nil {
		return err
	}
	defer conn.Close()
	to, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	what, err := socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("descriptor of the socket: %w", err)
	}
	var sent error
	errWhat := what.Control(func(fd uintptr) {
		rights := syscall.UnixRights(int(fd))
		// Go (1.26) refuses WriteMsgUnix for connected datagram sockets, and only a connected socket becomes writable
		// when the manager has read its queue.
		err = to.Write(func(manager uintptr) bool {
			sent = syscall.Sendmsg(int(manager), text, rights, nil, 0)
			return !errors.Is(sent, syscall.EAGAIN)
		})
	})
	return cmp.Or(errWhat, err, os.NewSyscallError("sendmsg", sent))
}

// note logs the first of several failures in a row.
func (m *Manager) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && !m.failed {
		m.logger.Warn("service manager not notified, continuing without it", "notify_socket", address(), "error", err)
	}
	m.failed = err != nil
}
