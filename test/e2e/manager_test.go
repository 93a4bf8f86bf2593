package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"edgeway/test/netlab"
)

// manager implements a service manager's file descriptor store, which passes one daemon's sockets to the next daemon.
// The tests in test/vm use systemd itself.
type manager struct {
	conn *net.UnixConn
	path string

	mu    sync.Mutex
	files map[string]*os.File
}

func (l *lab) newManager(dir string) *manager {
	l.t.Helper()
	m := &manager{path: filepath.Join(dir, "notify"), files: map[string]*os.File{}}
	var err error
	m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	l.must(err)
	l.t.Cleanup(func() {
		_ = m.conn.Close()
		for _, f := range m.files {
			_ = f.Close()
		}
	})
	go m.receive()
	return m
}

func (m *manager) receive() {
	text, control := make([]byte, 4096), make([]byte, 256)
	for {
		n, c, _, _, err := m.conn.ReadMsgUnix(text, control)
		if err != nil {
			return
		}
		m.storeSockets(strings.Fields(string(text[:n])), control[:c])
	}
}

// storeSockets stores the sockets in a message from the daemon, or closes the stored socket that the message names.
func (m *manager) storeSockets(assignments []string, control []byte) {
	var fds []int
	if messages, err := unix.ParseSocketControlMessage(control); err == nil && len(messages) > 0 {
		fds, _ = unix.ParseUnixRights(&messages[0])
	}
	name := ""
	for _, a := range assignments {
		if value, ok := strings.CutPrefix(a, "FDNAME="); ok {
			name = value
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, fd := range fds {
		m.files[name] = os.NewFile(uintptr(fd), name)
	}
	if slices.Contains(assignments, "FDSTOREREMOVE=1") && m.files[name] != nil {
		_ = m.files[name].Close()
		delete(m.files, name)
	}
}

// command is like netlab.Host.Command, but passes the stored sockets to the program. The shell sets LISTEN_PID to its
// own process ID.
func (m *manager) command(on *netlab.Host) func(context.Context, string, ...string) *exec.Cmd {
	return func(ctx context.Context, name string, args ...string) *exec.Cmd {
		m.mu.Lock()
		defer m.mu.Unlock()
		cmd := on.Command(ctx, "sh", slices.Concat([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh", name}, args)...)
		names := slices.Sorted(maps.Keys(m.files))
		for _, name := range names {
			cmd.ExtraFiles = append(cmd.ExtraFiles, m.files[name])
		}
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path,
			fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
		return cmd
	}
}

// hasSockets returns an error unless the store contains exactly the wanted number of sockets.
func (m *manager) hasSockets(want int) func() error {
	return func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.files) != want {
			return fmt.Errorf("the service manager keeps %v, want %d", slices.Sorted(maps.Keys(m.files)), want)
		}
		return nil
	}
}
