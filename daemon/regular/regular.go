// Package regular reads files that somebody else may have put in place. A pipe, a device, a file of /proc that waits or
// one without an end neither stops the reader nor fills the memory.
package regular

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

// Small is the bound of files that a person writes: configuration, kubeconfigs, keys and certificates.
const Small = 1 << 20

var (
	// ErrIrregular says that a path is no file with a content: a folder, pipe, socket or device.
	ErrIrregular = errors.New("it is not a regular file")
	// ErrTooLarge says that a file has more than it may have.
	ErrTooLarge = errors.New("it is too large")
)

// Open opens a file that has a content, be it behind symbolic links. It does not wait for one that has none.
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

// Read gives a file's content, or fails if it has more than limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	file, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadOpen(file, info, limit)
}

// ReadOpen is Read of what Open gave.
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

// Advice says what to do about a file or folder that could not be opened or read; empty: the error says it.
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

// barrier gives the first folder on the way that may not be entered, or else the path itself.
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
