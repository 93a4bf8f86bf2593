package relay

import "golang.org/x/sys/unix"

const (
	// pipeSize is the capacity that is asked for; the default of fs.pipe-max-size is 1 MiB. An
	// unprivileged user who has many pipes gets less, which only makes pieces smaller.
	pipeSize = 1 << 20
	// bulkSize is what a read must return for the flow to continue through a pipe: below it a copy costs less
	// than the two system calls.
	bulkSize = 16 << 10
	// maxPipes is how many pipes a loop has at most; further flows are copied. Two descriptors each.
	maxPipes = 16
	// storeSize is how much is read from a client before the endpoint has answered.
	storeSize = 4 << 10
)

// held are bytes between two sockets: in a pipe, or copied.
type held struct {
	in, out int32  // of the pipe; 0, 0: copied
	left    int    // bytes in the pipe
	bytes   []byte // the copied ones
	store   []byte // where the first bytes of a client are; nil: other bytes
}

func copied(b []byte) *held { return &held{bytes: append([]byte(nil), b...)} }

func (h *held) isPipe() bool { return h.in != 0 }

// drop ends what is held for a flow.
func (l *loop) drop(f *flow) {
	switch h := f.held; {
	case h.isPipe():
		l.pipes.release(h)
	case h.store != nil && len(l.stores) < maxSpare:
		l.stores = append(l.stores, h)
	}
	f.held = nil
}

// store gives a place for the first bytes of a client.
func (l *loop) store() *held {
	if n := len(l.stores); n > 0 {
		h := l.stores[n-1]
		l.stores = l.stores[:n-1]
		return h
	}
	return &held{store: make([]byte, storeSize)}
}

// pipes are the empty pipes of a loop. A flow has one only while bytes are in it.
type pipes struct {
	free []*held
	made int
}

// take gives an empty pipe; nil: there is none to be had now.
func (p *pipes) take() *held {
	if n := len(p.free); n > 0 {
		h := p.free[n-1]
		p.free = p.free[:n-1]
		return h
	}
	if p.made == maxPipes {
		return nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil
	}
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	p.made++
	return &held{in: int32(fds[1]), out: int32(fds[0])}
}

// release takes a pipe back. One that is not empty is closed.
func (p *pipes) release(h *held) {
	if h.left == 0 {
		p.free = append(p.free, h)
		return
	}
	p.close(h)
}

func (p *pipes) close(h *held) {
	closeFD(h.in)
	closeFD(h.out)
	p.made--
}

func (p *pipes) closeAll() {
	for _, h := range p.free {
		p.close(h)
	}
	p.free = nil
}
