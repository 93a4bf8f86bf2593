// Package nfnetlink reads nftables through netlink: dumps of the kernel's objects, and its notices of
// changes. It writes nothing. iptables-nft keeps its rules in nftables, so that two backends need this.
package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

const (
	netlinkHeader  = unix.NLMSG_HDRLEN
	nfgenHeader    = 4
	receiveTimeout = 10 // seconds; the kernel answers at once
)

// Conn is a netlink socket for reading nftables. It is used for one task and closed.
type Conn struct {
	fd  int
	buf []byte
}

// Dial opens a socket in the network namespace of the calling thread.
func Dial() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("netlink socket", err)
	}
	c := &Conn{fd: fd, buf: make([]byte, 1<<16)}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: receiveTimeout}); err != nil {
		c.Close()
		return nil, os.NewSyscallError("netlink receive timeout", err)
	}
	return c, nil
}

// Close closes the socket.
func (c *Conn) Close() { _ = unix.Close(c.fd) }

// Message is one netlink message about nftables.
type Message struct {
	// Kind is an NFT_MSG constant.
	Kind uint16
	// Family is an NFPROTO constant.
	Family uint8
	// Attrs is valid until the next message is read.
	Attrs []byte
}

// Dump asks for all objects of a kind and calls visit for each message, until that fails. The NLM_F_DUMP_INTR
// mark is ignored on purpose: it says that any table changed meanwhile, and a change in ours is told by the
// Monitor. Errors of the kernel are unix.Errno.
func (c *Conn) Dump(kind uint16, family uint8, attrs []byte, visit func(Message) error) error {
	if err := c.request(kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, attrs); err != nil {
		return err
	}
	var failed error
	for {
		n, err := c.receive()
		if err != nil {
			return err
		}
		done, err := EachMessage(c.buf[:n], func(m Message) {
			if failed == nil {
				failed = visit(m)
			}
		})
		if err != nil {
			return err
		}
		if done {
			return failed
		}
	}
}

// Generation gives the number of transactions so far in the network namespace, modulo 2^32.
func (c *Conn) Generation() (uint32, error) {
	if err := c.request(unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, nil); err != nil {
		return 0, err
	}
	n, err := c.receive()
	if err != nil {
		return 0, err
	}
	var id uint32
	_, err = EachMessage(c.buf[:n], func(m Message) { id = Uint32(Attr(m.Attrs, unix.NFTA_GEN_ID)) })
	return id, err
}

func (c *Conn) request(kind, flags uint16, family uint8, attrs []byte) error {
	b := make([]byte, 0, netlinkHeader+nfgenHeader+len(attrs))
	b = binary.NativeEndian.AppendUint32(b, uint32(cap(b)))
	b = binary.NativeEndian.AppendUint16(b, unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence and port: the socket has one request at a time
	b = append(b, family, unix.NFNETLINK_V0, 0, 0)
	b = append(b, attrs...)
	return os.NewSyscallError("netlink send", unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

func (c *Conn) receive() (int, error) {
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n, os.NewSyscallError("netlink receive", err)
	}
}

// EachMessage calls visit for each nftables message in b. done says that a dump ended.
func EachMessage(b []byte, visit func(Message)) (done bool, err error) {
	for len(b) >= netlinkHeader {
		size := int(binary.NativeEndian.Uint32(b))
		if size < netlinkHeader || size > len(b) {
			return false, fmt.Errorf("netlink message of %d bytes in %d", size, len(b))
		}
		kind, body := binary.NativeEndian.Uint16(b[4:]), b[netlinkHeader:size]
		switch {
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
				return true, os.NewSyscallError("netlink request", unix.Errno(errno))
			}
		case kind>>8 == unix.NFNL_SUBSYS_NFTABLES && len(body) >= nfgenHeader:
			visit(Message{kind & 0xff, body[0], body[nfgenHeader:]})
		}
		b = b[min(align(size), len(b)):]
	}
	return false, nil
}

// Family gives the number that nftables has for a family: NFPROTO_IPV4 or NFPROTO_IPV6.
func Family(f plan.Family) uint8 {
	if f == plan.IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}
