package sdunit

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"edgeway/test/hostile"
	"edgeway/test/sdtest"
)

// FuzzStatus verifies that systemd receives any error text as a single STATUS= assignment without control characters.
func FuzzStatus(f *testing.F) {
	m := NewManager(slog.New(slog.DiscardHandler))
	for _, text := range []string{
		"x\nREADY=1", "\x1b]0;owned\x07\x1b[2J", "\r\x00\v\f\u0085\u2028\u202e", "",
		"\xff\xc0", " \n ",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, message string) {
		manager := sdtest.New(t)
		text := oneLine(message[:min(len(message), 300)])
		m.send("STATUS=" + text)
		got := manager.Receive()
		if len(got) != 1 || len(got[0].Lines) != 1 || !got[0].Has("STATUS="+text) {
			t.Errorf("%q became %+v", text, got)
		}
		if bad := hostile.FindControl(text); bad != "" {
			t.Errorf("status: %s", bad)
		}
	})
}

// FuzzNotifySocket sets NOTIFY_SOCKET to arbitrary values. The service manager must receive a message if and only if
// the value is the socket's path.
func FuzzNotifySocket(f *testing.F) {
	for _, path := range []string{
		"notify", "./notify", "/", "@", "@edgeway-unused", "", ".", "vsock:2:1", "tcp:1",
		strings.Repeat("x", 107), strings.Repeat("x", 108), strings.Repeat("@", 200), "\x7f",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.ContainsRune(path, 0) || filepath.IsAbs(path) && path != "/" {
			return // a path cannot contain NUL; other absolute paths may lead to a socket
		}
		manager := sdtest.New(t)
		t.Chdir(filepath.Dir(os.Getenv("NOTIFY_SOCKET")))
		t.Setenv("NOTIFY_SOCKET", path)
		m := NewManager(slog.New(slog.DiscardHandler))
		sent := m.send("STATUS=x", "X=y")
		got := manager.Receive()
		if sent != (len(got) == 1) || len(got) == 1 && !slices.Equal(got[0].Lines, []string{"STATUS=x", "X=y"}) {
			t.Errorf("%q: sent %v, received %+v", path, sent, got)
		}
	})
}

// descriptor creates one of seven kinds of descriptors that systemd could pass. adopted reports whether NewSockets
// must adopt the socket. original is systemd's copy, and file is the daemon's copy.
func descriptor(t *testing.T, kind byte, name string) (original io.Closer, file *os.File, adopted bool) {
	t.Helper()
	var c interface {
		syscall.Conn
		io.Closer
	}
	var err error
	tcp := func(addr string) {
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			c = l.(*net.TCPListener)
		}
	}
	switch kind % 7 {
	case 0:
		tcp("127.0.0.1:0")
	case 1:
		tcp("[::1]:0")
	case 2:
		tcp("127.9.9.9:0")
	case 3:
		tcp("0.0.0.0:0")
	case 4:
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	case 5:
		c, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	default:
		c, err = os.Open("/proc/self/stat")
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, fileOf(t, c, name), kind%7 < 3
}

// FuzzPassed passes descriptors of arbitrary kinds, with arbitrary names, to NewSockets. NewSockets must adopt sockets
// that listen on loopback, and must close all other descriptors. A descriptor's name must not add assignments to the
// messages for systemd.
func FuzzPassed(f *testing.F) {
	f.Add("x.socket:nodeport-127.0.0.1-80", []byte{0, 1, 2, 3, 4, 5, 6})
	f.Add("nodeport-a:nodeport-b:nodeport-c:nodeport-d:nodeport-e", []byte{6, 5, 4, 3, 2, 1, 0})
	f.Add(":::", []byte{0, 0, 0})
	f.Add("nodeport-x\nMAINPID=1:nodeport-\x1b[2J\nFDSTOREREMOVE=1", []byte{4, 2})
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, names string, kinds []byte) {
		manager := sdtest.New(t)
		before, want := openFiles(t), 0
		logger := slog.New(slog.DiscardHandler)
		list := strings.Split(names, ":")
		var files []*os.File
		for i, kind := range kinds[:min(len(kinds), 8)] {
			original, file, adopted := descriptor(t, kind, list[i%len(list)])
			defer original.Close()
			before++
			files = append(files, file)
			if adopted {
				want++
			}
		}
		s := NewSockets(NewManager(logger), files, logger)
		got := s.Unused()
		if len(got) != want || slices.ContainsFunc(got, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() }) {
			t.Errorf("%v adopted of the kinds %v, want %d", got, kinds, want)
		}
		for _, addr := range got {
			s.remove(s.open[addr])
		}
		for _, d := range manager.Receive() {
			if len(d.Lines) != 2 || d.Lines[0] != "FDSTOREREMOVE=1" ||
				!strings.HasPrefix(d.Lines[1], "FDNAME="+storePrefix) {
				t.Errorf("the service manager is told %q", d.Lines)
			}
		}
		if after := openFiles(t); after > before {
			t.Errorf("%d descriptors are open, want %d", after, before)
		}
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// PassedFiles ignores LISTEN_FDS if it is invalid or exceeds the process's limit on open files.
func TestPassedIgnoresInvalidCount(t *testing.T) {
	for _, n := range []string{"9223372036854775807", "2147483647", "-1", "", "x", "1e9", "0"} {
		t.Run(n, func(t *testing.T) {
			t.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
			t.Setenv("LISTEN_FDS", n)
			if files := PassedFiles(); len(files) > 0 {
				t.Errorf("%d files", len(files))
			}
			if os.Getenv("LISTEN_PID") != "" {
				t.Error("programs that the daemon starts would see the environment")
			}
		})
	}
}
