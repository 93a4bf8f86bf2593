// Package sdtest simulates systemd's notification socket in tests.
package sdtest

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Manager receives the notifications that a process sends to NOTIFY_SOCKET.
type Manager struct {
	t    testing.TB
	conn *net.UnixConn
}

// Datagram is one notification with its assignments and file descriptors. sdtest closes the descriptors at the end of
// the test.
type Datagram struct {
	Lines []string
	FDs   []int
}

// Has reports whether the datagram contains an assignment, such as "READY=1".
func (d Datagram) Has(line string) bool { return slices.Contains(d.Lines, line) }

// Value returns the text after "NAME=", or "" if the datagram has no assignment to NAME.
func (d Datagram) Value(name string) string {
	for _, line := range d.Lines {
		if v, ok := strings.CutPrefix(line, name+"="); ok {
			return v
		}
	}
	return ""
}

// New creates the socket and sets NOTIFY_SOCKET to its path.
func New(t testing.TB) *Manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &Manager{t: t, conn: conn}
}

// Receive returns the datagrams that Manager has received since the previous call. Receive does not block, so it does
// not advance the clock of a synctest bubble.
func (m *Manager) Receive() []Datagram {
	m.t.Helper()
	raw, err := m.conn.SyscallConn()
	if err != nil {
		m.t.Fatal(err)
	}
	var out []Datagram
	for {
		text, oob := make([]byte, 4096), make([]byte, 256)
		var n, oobn int
		if rawErr := raw.Control(func(fd uintptr) {
			n, oobn, _, _, err = syscall.Recvmsg(int(fd), text, oob, syscall.MSG_DONTWAIT|syscall.MSG_CMSG_CLOEXEC)
		}); rawErr != nil {
			m.t.Fatal(rawErr)
		}
		if errors.Is(err, syscall.EAGAIN) {
			return out
		}
		if err != nil {
			m.t.Fatal(err)
		}
		out = append(out, Datagram{Lines: strings.Split(string(text[:n]), "\n"), FDs: m.rights(oob[:oobn])})
	}
}

func (m *Manager) rights(oob []byte) []int {
	m.t.Helper()
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		m.t.Fatal(err)
	}
	var fds []int
	for i := range messages {
		got, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			m.t.Fatal(err)
		}
		fds = append(fds, got...)
	}
	m.t.Cleanup(func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	})
	return fds
}
