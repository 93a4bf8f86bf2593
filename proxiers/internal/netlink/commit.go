package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// writeBuffer is the size in bytes of the socket's write buffer, which limits the size of a batch. A batch of 30,000
// IPv6 elements occupies a tenth of the write buffer. The kernel allocates memory for the buffer only while reading a
// batch.
const writeBuffer = 32 << 20

// ErrStale means that the kernel rejected a batch because another transaction came first.
var ErrStale = errors.New("another transaction came first")

// ErrTooBig means that a batch is larger than the socket's buffer, so Commit did not send the batch.
var ErrTooBig = errors.New("the batch is larger than the socket's buffer")

// RejectionError means that the kernel rejected a batch and applied none of its changes.
type RejectionError struct {
	Errno unix.Errno
	// Message is the index of the first rejected message, or -1 if the kernel rejected the batch as a whole.
	Message int
	// Text is the kernel's explanation of the error.
	Text string
}

func (r *RejectionError) Error() string {
	if r.Text != "" {
		return fmt.Sprintf("nf_tables: %s: %s", r.Errno, r.Text)
	}
	return fmt.Sprintf("nf_tables: %s", r.Errno)
}

// Unwrap returns the error number.
func (r *RejectionError) Unwrap() error { return r.Errno }

// IsPermanent reports whether the kernel rejected the content of the batch, so a retry cannot succeed.
func (r *RejectionError) IsPermanent() bool {
	switch r.Errno {
	case unix.EPERM, unix.EACCES, unix.ENOMEM, unix.ENOBUFS, unix.EMSGSIZE, unix.EAGAIN, unix.EINTR:
		return false
	}
	return true
}

// Port returns the socket's netlink address, which appears as the sender in notifications about Commit's transactions.
func (c *Conn) Port() uint32 { return c.port.Load() }

// Commit sends a batch to the kernel. If the given generation is no longer current, Commit returns ErrStale. After any
// error except ErrStale, ErrTooBig and a RejectionError, the caller does not know whether the kernel applied the batch.
// The caller may commit the same batch again.
func (c *Conn) Commit(b *Batch, generation uint32) error {
	if generation == 0 {
		return errors.New("nf_tables batch without a generation") // the kernel interprets 0 as "any"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.repair(); err != nil {
		return err
	}
	if b.Size() > c.MaxBatchSize {
		return ErrTooBig
	}
	var failed error
	err := c.raw.Control(func(fd uintptr) {
		all := b.bytes(generation)
		if _, failed = unix.Write(int(fd), all); failed != nil {
			return
		}
		failed = c.readResponses(int(fd), b.Messages())
	})
	if err == nil {
		err = failed
	}
	var refused *RejectionError
	if err != nil && !errors.Is(err, ErrStale) && !errors.As(err, &refused) {
		c.stuck = true
		return fmt.Errorf("nf_tables batch: %w", err)
	}
	return err
}

// readResponses reads the kernel's responses to a batch. The kernel has sent all responses by the time the write
// returns.
func (c *Conn) readResponses(fd, messages int) error {
	var first *RejectionError
	done := false
	for {
		n, err := read(uintptr(fd), c.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return outcome(first, done)
		case errors.Is(err, unix.ENOBUFS) && first != nil:
			continue // the kernel has more rejections to report than the buffer holds
		case err != nil:
			return os.NewSyscallError("netlink receive", err)
		}
		for seq, r := range eachResponse(c.buf[:n]) {
			switch {
			case r.Errno == 0:
				done = done || seq == uint32(messages)
			case first == nil || r.Message < first.Message:
				first = &r
			}
		}
	}
}

// outcome returns the result of a batch: the first rejection, or nil if the kernel acknowledged the last message.
func outcome(first *RejectionError, done bool) error {
	switch {
	case first != nil && first.Message < 0 && first.Errno == unix.ERESTART:
		return ErrStale
	case first != nil:
		return first
	case !done:
		return errors.New("the kernel did not respond")
	}
	return nil
}

// eachResponse iterates over the responses in a datagram. The sequence numbers in a batch start at 1.
func eachResponse(b []byte) func(yield func(uint32, RejectionError) bool) {
	return func(yield func(uint32, RejectionError) bool) {
		for len(b) >= netlinkHeader {
			size := int(binary.NativeEndian.Uint32(b))
			if size < netlinkHeader || size > len(b) {
				return
			}
			flags, seq, body := binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:]),
				b[netlinkHeader:size]
			if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR && len(body) >= 4 &&
				!yield(seq, decodeResponse(flags, seq, body)) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// decodeResponse decodes a response's body, which consists of the error number, the header of the rejected message, and
// attributes.
func decodeResponse(flags uint16, seq uint32, body []byte) RejectionError {
	r := RejectionError{Errno: unix.Errno(-int32(binary.NativeEndian.Uint32(body))), Message: int(seq) - 1}
	if flags&unix.NLM_F_ACK_TLVS != 0 && flags&unix.NLM_F_CAPPED != 0 && len(body) >= 4+netlinkHeader {
		r.Text = string(Text(Attr(body[4+netlinkHeader:], unix.NLMSGERR_ATTR_MSG)))
	}
	return r
}
