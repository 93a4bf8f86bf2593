package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// writeBuffer is the bound of a batch: one of 30,000 elements of IPv6 takes a tenth of it. The kernel takes the memory
// only while it reads a batch.
const writeBuffer = 32 << 20

// ErrStale says that another transaction came before a batch. The kernel has done nothing of it.
var ErrStale = errors.New("another transaction came before")

// ErrTooBig says that a batch is more than the socket takes. The kernel has not seen it.
var ErrTooBig = errors.New("the batch is more than the socket takes")

// Refused says that the kernel refuses a batch. It has done nothing of it.
type Refused struct {
	Errno unix.Errno
	// Message is the first that it refuses; -1: the batch as a whole.
	Message int
	// Offset is the place of the attribute that it refuses, from the message's start; 0: it does not say.
	Offset int
	// Text is what the kernel says beside the number.
	Text string
}

func (r *Refused) Error() string {
	if r.Text != "" {
		return fmt.Sprintf("nf_tables: %s: %s", r.Errno, r.Text)
	}
	return fmt.Sprintf("nf_tables: %s", r.Errno)
}

// Unwrap gives the number.
func (r *Refused) Unwrap() error { return r.Errno }

// Content says that the same bytes will be refused again: no lack of memory or privilege.
func (r *Refused) Content() bool {
	switch r.Errno {
	case unix.EPERM, unix.EACCES, unix.ENOMEM, unix.ENOBUFS, unix.EMSGSIZE, unix.EAGAIN, unix.EINTR:
		return false
	}
	return true
}

// Port is the sender in the kernel's notices of what Commit did.
func (c *Conn) Port() uint32 { return c.port.Load() }

// Commit has the kernel do a batch, unless there was a transaction after the one of that number (ErrStale). After any
// error but ErrStale, ErrTooBig and Refused it is not known what the kernel did. The batch can be committed again.
func (c *Conn) Commit(b *Batch, generation uint32) error {
	if generation == 0 {
		return errors.New("nf_tables batch without a generation") // the kernel takes it as "any"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	if b.Size() > c.Room {
		return ErrTooBig
	}
	var failed error
	err := c.raw.Control(func(fd uintptr) {
		all := b.bytes(generation)
		if _, failed = unix.Write(int(fd), all); failed != nil {
			return
		}
		failed = c.answers(int(fd), b.Messages())
	})
	if err == nil {
		err = failed
	}
	var refused *Refused
	if err != nil && !errors.Is(err, ErrStale) && !errors.As(err, &refused) {
		c.stuck = true
		return fmt.Errorf("nf_tables batch: %w", err)
	}
	return err
}

// answers reads what the kernel has said of a batch: all of it is there when the write returns.
func (c *Conn) answers(fd, messages int) error {
	var first *Refused
	done := false
	for {
		n, err := read(uintptr(fd), c.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return outcome(first, done)
		case errors.Is(err, unix.ENOBUFS) && first != nil:
			continue // it refuses more than there is room to say
		case err != nil:
			return os.NewSyscallError("netlink receive", err)
		}
		for seq, r := range eachAnswer(c.buf[:n]) {
			switch {
			case r.Errno == 0:
				done = done || seq == uint32(messages)
			case first == nil || r.Message < first.Message:
				first = &r
			}
		}
	}
}

// outcome says what became of a batch whose last message was done, as far as the kernel has said, or the first that it
// refused.
func outcome(first *Refused, done bool) error {
	switch {
	case first != nil && first.Message < 0 && first.Errno == unix.ERESTART:
		return ErrStale
	case first != nil:
		return first
	case !done:
		return errors.New("the kernel did not answer")
	}
	return nil
}

// eachAnswer walks over the answers in a datagram. A message of a batch has its number, from 1, as its sequence.
func eachAnswer(b []byte) func(yield func(uint32, Refused) bool) {
	return func(yield func(uint32, Refused) bool) {
		for len(b) >= netlinkHeader {
			size := int(binary.NativeEndian.Uint32(b))
			if size < netlinkHeader || size > len(b) {
				return
			}
			flags, seq, body := binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:]),
				b[netlinkHeader:size]
			if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR && len(body) >= 4 &&
				!yield(seq, answer(flags, seq, body)) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// answer reads the body of one: the number, the head of the message that it is about, and attributes.
func answer(flags uint16, seq uint32, body []byte) Refused {
	r := Refused{Errno: unix.Errno(-int32(binary.NativeEndian.Uint32(body))), Message: int(seq) - 1}
	if flags&unix.NLM_F_ACK_TLVS == 0 || flags&unix.NLM_F_CAPPED == 0 || len(body) < 4+netlinkHeader {
		return r
	}
	for typ, v := range EachAttr(body[4+netlinkHeader:]) {
		switch {
		case typ == unix.NLMSGERR_ATTR_MSG:
			r.Text = string(Text(v))
		case typ == unix.NLMSGERR_ATTR_OFFS && len(v) == 4:
			r.Offset = int(binary.NativeEndian.Uint32(v))
		}
	}
	return r
}
