package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Small is the limit for files that a person writes: configuration, kubeconfigs, keys and certificates.
const Small = 1 << 20

var (
	// ErrIrregular is the error for a folder, pipe, socket or device.
	ErrIrregular = errors.New("it is not a regular file")
	// ErrTooLarge is the error for a file above the limit.
	ErrTooLarge = errors.New("it is too large")
)

// Open opens a regular file, also behind symbolic links. It does not wait for a pipe or a device.
func Open(path string) (*os.File, fs.FileInfo, error) {
	// To open a device may be enough to harm: a watchdog starts, a tape rewinds.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, irregular(path)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() { // it took the place of a file
		err = irregular(path)
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, nil, err
	}
	return file, info, nil
}

func irregular(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: ErrIrregular}
}

// Read returns a file's content, and fails if it has more than limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	file, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadOpen(file, info, limit)
}

// ReadOpen does the same with the results of Open.
func ReadOpen(file *os.File, info fs.FileInfo, limit int64) ([]byte, error) {
	path := file.Name()
	if info.Size() > limit {
		return nil, tooLarge(path, limit)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(impatient{raw}, limit+1))
	switch {
	case err != nil:
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	case int64(len(data)) > limit: // it grew, or is one of /proc that does not tell its size
		return nil, tooLarge(path, limit)
	}
	return data, nil
}

// Advice returns what to do about a file or folder that could not be opened or read, or "" if the error says it.
func Advice(path string, err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		closed := barrier(path)
		return fmt.Sprintf("run: chgrp edgeway %s && chmod g+rX %s", closed, closed)
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(path, "/~"):
		return "write the whole path: ~ is not expanded"
	case errors.Is(err, fs.ErrNotExist):
		return "create it, or correct the path"
	case errors.Is(err, ErrIrregular):
		return "name a file there"
	}
	return ""
}

// barrier returns the first folder of the path that may not be entered, or otherwise the path itself.
func barrier(path string) string {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if _, err := os.Stat(path[:i] + "/."); errors.Is(err, fs.ErrPermission) {
			return path[:i]
		}
	}
	return path
}

func tooLarge(path string, limit int64) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: more than %d MiB", ErrTooLarge, limit>>20)}
}

// impatient reads a file without waiting. The reader of package os (Go 1.26) waits for a file that the kernel can
// tell the readiness of, as of some in /proc.
type impatient struct{ raw syscall.RawConn }

// Read implements io.Reader.
func (r impatient) Read(p []byte) (n int, err error) {
	closed := r.raw.Read(func(fd uintptr) bool {
		for n, err = unix.Read(int(fd), p); errors.Is(err, unix.EINTR); {
			n, err = unix.Read(int(fd), p)
		}
		return true
	})
	switch {
	case closed != nil:
		return 0, closed
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
