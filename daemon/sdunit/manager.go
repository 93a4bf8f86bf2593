// Package sdunit integrates the daemon with its systemd unit. The package reports readiness and status (sd_notify),
// notifies the watchdog while the sync loop is alive, and takes over listening sockets from socket units and from the
// fd store.
//
// If systemd did not start the daemon (NOTIFY_SOCKET and LISTEN_FDS are not set), the package only opens and closes
// sockets.
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
	"syscall"
	"time"

	"edgeway/proxiers/messageid"
)

// sendTimeout is the maximum time to wait for a service manager that does not read its socket.
const sendTimeout = 2 * time.Second

// Manager sends notifications to the service manager. If several consecutive notifications fail, Manager logs only
// the first failure. Manager returns no errors.
type Manager struct {
	logger *slog.Logger

	mu sync.Mutex
	// sendFailed reports whether sending the last datagram failed. After a failure, the next send does not wait.
	sendFailed bool
}

// NewManager returns a Manager that sends to the address in NOTIFY_SOCKET. NewManager does not connect.
func NewManager(logger *slog.Logger) *Manager { return &Manager{logger: logger} }

// ExtendStart asks systemd to extend the start timeout for work that takes at most limit and precedes Notifier.Run. On
// a slow single-board computer, testing the host may take minutes, so systemd would otherwise abort the start after
// TimeoutStartSec=. If the Notifier later requests less time, systemd keeps the longer time (see
// service_extend_event_source_timeout in systemd's service.c).
func (m *Manager) ExtendStart(limit time.Duration) { m.send(extension(limit + extraTime)) }

func extension(d time.Duration) string {
	return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds())
}

// isPresent reports whether the daemon is running under a service manager.
func (m *Manager) isPresent() bool { return address() != "" }

func address() string { return os.Getenv("NOTIFY_SOCKET") }

// send sends the assignments in one datagram, and reports whether the service manager received it.
func (m *Manager) send(assignments ...string) bool {
	return m.deliver(nil, assignments)
}

func (m *Manager) sendSocket(socket syscall.Conn, assignments ...string) {
	raw, err := socket.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { m.deliver(syscall.UnixRights(int(fd)), assignments) })
	}
	if err != nil {
		m.logger.Warn("cannot store the listening socket", "error", err)
	}
}

func (m *Manager) deliver(rights []byte, assignments []string) bool {
	if !m.isPresent() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := sendDatagram(rights, strings.Join(assignments, "\n"), !m.sendFailed)
	if err != nil && !m.sendFailed {
		m.logger.Warn("cannot notify the service manager, continuing", "message_id", messageid.ManagerNotNotified,
			"notify_socket", address(), "error", err)
	}
	m.sendFailed = err != nil
	return err == nil
}

// sendDatagram sends text and file descriptors. If wait is true and the manager's queue is full, sendDatagram waits for
// up to sendTimeout. SdNotify in go-systemd (22.7) waits indefinitely and cannot send descriptors.
func sendDatagram(rights []byte, text string, wait bool) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: address()})
	if err != nil {
		return err
	}
	defer conn.Close()
	to, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	var sent error
	// Go (1.26) does not allow WriteMsgUnix on connected datagram sockets. Only a connected socket becomes writable
	// when the manager has read the queued messages.
	err = to.Write(func(manager uintptr) bool {
		sent = syscall.Sendmsg(int(manager), []byte(text), rights, nil, 0)
		return !wait || !errors.Is(sent, syscall.EAGAIN)
	})
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(sent, syscall.EAGAIN) {
		return errDeaf
	}
	return cmp.Or(err, os.NewSyscallError("sendmsg", sent))
}

var errDeaf = errors.New("the service manager does not read the notification socket")
