// Package sdunit is the daemon's side of its systemd unit: it reports readiness and status
// (sd_notify), notifies the watchdog while the sync loop is alive, and takes over and keeps listening
// sockets (socket units and the fd store).
//
// Without systemd, that is without NOTIFY_SOCKET and LISTEN_FDS, it only opens
// and closes sockets.
package sdunit

import (
	"cmp"
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
)

// sendTimeout bounds the wait for a service manager that does not read.
const sendTimeout = 2 * time.Second

var errDeaf = errors.New("the service manager does not read its socket")

// Manager sends to the service manager. A failure is logged once and not returned.
type Manager struct {
	logger *slog.Logger
	// sending has room for the one datagram that is being sent: they stay in order.
	sending chan struct{}
	// deaf says that the one being sent takes longer than sendTimeout.
	deaf atomic.Bool

	mu     sync.Mutex
	failed bool
}

// NewManager takes the address from NOTIFY_SOCKET, as package daemon of go-systemd does. It does not connect.
func NewManager(logger *slog.Logger) *Manager {
	return &Manager{logger: logger, sending: make(chan struct{}, 1)}
}

// present says that there is a service manager to notify.
func (m *Manager) present() bool { return address() != "" }

func address() string { return os.Getenv("NOTIFY_SOCKET") }

// send sends the assignments in one datagram, and reports whether the service manager has it.
func (m *Manager) send(assignments ...string) bool {
	return m.deliver(func() error {
		_, err := sd.SdNotify(false, strings.Join(assignments, "\n"))
		return err
	})
}

// sendSocket sends assignments and the descriptor of a socket, which stays the caller's.
func (m *Manager) sendSocket(socket syscall.Conn, assignments ...string) {
	m.deliver(func() error { return sendSocket(socket, []byte(strings.Join(assignments, "\n"))) })
}

// deliver sends, but waits no longer than sendTimeout: SdNotify of go-systemd (22.7) would wait for ever. It
// does not wait for a manager that did not read the previous datagram in time.
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
		sent <- send()
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
		// Not WriteMsgUnix, which Go (1.26) refuses for connected datagram sockets; a socket that is not
		// connected would not notice when the manager has read its queue.
		err = to.Write(func(manager uintptr) bool {
			sent = syscall.Sendmsg(int(manager), text, rights, nil, 0)
			return !errors.Is(sent, syscall.EAGAIN)
		})
	})
	return cmp.Or(errWhat, err, os.NewSyscallError("sendmsg", sent))
}

// note logs the first of several faults in a row.
func (m *Manager) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && !m.failed {
		m.logger.Warn("service manager cannot be notified, the daemon continues without it", "notify_socket", address(), "error", err)
	}
	m.failed = err != nil
}
