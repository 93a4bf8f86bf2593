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

// SmallLimit is the maximum size of configuration files, kubeconfigs, keys and certificates, in bytes.
const SmallLimit = 1 << 20

var (
	// ErrIrregular is the error for a directory, pipe, socket or device.
	ErrIrregular = errors.New("not a regular file")
	// ErrTooLarge is the error for a file that exceeds the size limit.
	ErrTooLarge = errors.New("file too large")
)

// Open opens a regular file and follows symbolic links. Open never blocks on a pipe or a device.
func Open(path string) (*os.File, fs.FileInfo, error) {
	// Merely opening a device can do harm, such as starting a watchdog or rewinding a tape.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, irregular(path)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() { // the file was replaced after os.Stat
		err = irregular(path)
	}
	if err != nil {
		_ = file.Close() // nothing was written to the file
		return nil, nil, err
	}
	return file, info, nil
}

func irregular(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: ErrIrregular}
}

// Read returns the content of a file, or an error if the file is larger than limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	file, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadOpen(file, info, limit)
}

// ReadOpen is like Read, but reads a file that Open returned.
func ReadOpen(file *os.File, info fs.FileInfo, limit int64) ([]byte, error) {
	path := file.Name()
	if info.Size() > limit {
		return nil, tooLarge(path, limit)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(nonblockingReader{raw}, limit+1))
	switch {
	case err != nil:
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	case int64(len(data)) > limit: // the file grew, or is in /proc and reported no size
		return nil, tooLarge(path, limit)
	}
	return data, nil
}

// Advice returns a fix for err, or "" if err is clear enough by itself. err is an error from opening or reading path.
func Advice(path string, err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		closed := deniedDir(path)
		return fmt.Sprintf("run: chgrp edgeway %s && chmod g+rX %s", closed, closed)
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(path, "/~"):
		return "specify the absolute path: Edgeway does not expand ~"
	case errors.Is(err, fs.ErrNotExist):
		return "create the file or directory, or correct the path"
	case errors.Is(err, ErrIrregular):
		return "specify a regular file"
	}
	return ""
}

// deniedDir returns the first directory in the path that denies access, or the path itself if no directory does.
func deniedDir(path string) string {
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

// nonblockingReader reads a file without blocking. os.File (Go 1.26) waits until the file is ready if the file supports
// polling, as some files in /proc do.
type nonblockingReader struct{ raw syscall.RawConn }

// Read implements io.Reader.
func (r nonblockingReader) Read(p []byte) (n int, err error) {
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
