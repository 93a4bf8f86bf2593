package relay

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A stream uses a pipe only while data is moving, so the relay needs fewer pipes than streams. For a user without
// CAP_SYS_RESOURCE, the kernel limits the total size of all pipes to 64 MB (fs.pipe-user-pages-soft), and limits any
// further pipes to 8 kB each. The relay does not use io.Copy, because io.Copy (Go 1.26) requests a pipe of 1 MB for
// each direction of each connection. The relay's pipes hold at most 59 MB. Many streams with slow receivers may use all
// pipes at the same time.
const (
	largePipe  = 256 << 10
	smallPipe  = 64 << 10
	largePipes = 112 // the maximum number of pipes of the size largePipe
	maxPipes   = 600
)

type pipe struct{ in, out, size int }

// pipePool holds the empty pipes. A pipePool is safe for concurrent use.
type pipePool struct {
	mu    sync.Mutex
	empty []pipe
	made  int
	large int // the number of pipes of the size largePipe
}

func (p *pipePool) take() (pipe, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.empty); n > 0 {
		taken := p.empty[n-1]
		p.empty = p.empty[:n-1]
		return taken, true
	}
	var fds [2]int
	if p.made >= pipeLimit() || unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
		return pipe{}, false
	}
	made := pipe{in: fds[1], out: fds[0], size: smallPipe}
	if p.large < largePipes {
		made.size = largePipe
		p.large++
	}
	p.made++
	if _, err := unix.FcntlInt(uintptr(made.in), unix.F_SETPIPE_SZ, made.size); err != nil {
		p.close(made) // the user has too many pipes, and a pipe of 8 kB is slower than a copy
		return pipe{}, false
	}
	return made, true
}

func (p *pipePool) put(used pipe, empty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if empty {
		p.empty = append(p.empty, used)
	} else {
		p.close(used)
	}
}

// close closes a pipe's descriptors. The caller must hold p.mu.
func (p *pipePool) close(closing pipe) {
	_, _ = unix.Close(closing.in), unix.Close(closing.out)
	p.made--
	if closing.size == largePipe {
		p.large--
	}
}

func (p *pipePool) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.empty {
		p.close(e)
	}
	p.empty = nil
}

// pipeLimit returns the maximum number of pipes. If RLIMIT_NOFILE is small, pipes use at most an eighth of the
// descriptors.
func pipeLimit() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return maxPipes
	}
	return int(min(maxPipes, files.Cur/16))
}

// move moves received data from one socket to another, and returns the number of bytes moved. move returns 0 without an
// error if there is no data, if the next byte is urgent, if the stream has ended, if no pipe is free, or if the kernel
// or a seccomp filter refuses splice.
func (p *pipePool) move(to, from syscall.RawConn) (moved int, err error) {
	pipe, ok := p.take()
	if !ok {
		return 0, nil
	}
	left := 0
	defer func() { p.put(pipe, left == 0) }()
	var failure error
	err = from.Read(func(fd uintptr) bool {
		left, failure = splice(int(fd), pipe.in, pipe.size)
		return true
	})
	switch {
	case errors.Is(failure, unix.EAGAIN), errors.Is(failure, unix.ENOMEM), errors.Is(failure, unix.EPERM),
		errors.Is(failure, unix.ENOSYS), errors.Is(failure, unix.EINVAL):
		failure = nil
	}
	for err = errors.Join(err, failure); err == nil && left > 0; err = errors.Join(err, failure) {
		err = to.Write(func(fd uintptr) bool {
			var n int
			n, failure = splice(pipe.out, int(fd), left)
			left, moved = left-n, moved+n
			return !errors.Is(failure, unix.EAGAIN)
		})
	}
	return moved, err
}

func splice(from, to, most int) (int, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if !errors.Is(err, unix.EINTR) {
			return int(max(n, 0)), err
		}
	}
}
