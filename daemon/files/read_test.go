package files

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func quickly(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
	}
}

func TestReadRefusesIrregularFiles(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	listener, err := net.Listen("unix", in("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := errors.Join(
		unix.Mkfifo(in("pipe"), 0o600), os.Mkdir(in("folder"), 0o700), os.Symlink("pipe", in("link")),
		os.Symlink("/dev/zero", in("zero")),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe", "folder", "link", "zero", "socket"} {
		quickly(t, func() {
			_, err := Read(in(name), SmallLimit)
			var pathErr *fs.PathError
			if !errors.Is(err, ErrIrregular) || !errors.As(err, &pathErr) || pathErr.Path != in(name) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// Opening a device can have side effects, so Read must not open one. The test uses a pipe, because inotify reports
// whether Read opened it.
func TestReadDoesNotOpenIrregularFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, pipe, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(pipe, SmallLimit); !errors.Is(err, ErrIrregular) {
		t.Error(err)
	}
	if _, err := unix.Read(watch, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("it was opened (%v)", err)
	}
}

// Some regular files in /proc report size 0 and block their readers.
func TestReadRefusesBlockingFile(t *testing.T) {
	const waiting = "/proc/kmsg" // only root can read this file
	quickly(t, func() {
		if data, err := Read(waiting, 1<<30); err == nil {
			t.Errorf("%s was read to its end: %d bytes", waiting, len(data))
		}
	})
}

func TestReadLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(path, 7); err != nil || string(data) != "content" {
		t.Errorf("%q %v", data, err)
	}
	if _, err := Read(path, 6); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if err := os.Truncate(path, 3<<30); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1, func() { _, err := Read(path, SmallLimit); _ = err }); n > 100 {
		t.Errorf("%.0f allocations for a file that is not read", n)
	}
	if data, err := Read("/proc/self/status", SmallLimit); err != nil || !strings.HasPrefix(string(data), "Name:") {
		t.Errorf("%q %v", data, err)
	}
	if _, err := Read("/proc/self/status", 10); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := Read(path+"x", SmallLimit); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
