package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// Attribute numbers of the kernel's nf_tables.h that golang.org/x/sys/unix lacks, or has only for
// some messages: attribute 1 of every message about a table's contents is the table's name.
const (
	attrTable      = 1
	attrKeyEnd     = 10
	attrTypeMask   = 0x3fff
	netlinkHeader  = unix.NLMSG_HDRLEN
	nfgenHeader    = 4
	receiveTimeout = 10 // seconds; the kernel answers at once
)

// nfConn is a netlink socket for reading nftables. It is used for one task and closed.
type nfConn struct {
	fd  int
	buf []byte
}

func dialNetfilter() (*nfConn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("netlink socket", err)
	}
	c := &nfConn{fd: fd, buf: make([]byte, 1<<16)}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: receiveTimeout}); err != nil {
		c.close()
		return nil, os.NewSyscallError("netlink receive timeout", err)
	}
	return c, nil
}

func (c *nfConn) close() { _ = unix.Close(c.fd) }

// message is one netlink message about nftables.
type message struct {
	// kind is an NFT_MSG constant.
	kind   uint16
	family uint8
	// attrs is valid until the next message is read.
	attrs []byte
}

// dump asks for all objects of a kind and calls visit for each message. The NLM_F_DUMP_INTR mark is
// ignored on purpose: it says that any table changed meanwhile, and a change in ours is told by
// the monitor.
func (c *nfConn) dump(kind uint16, family uint8, attrs []byte, visit func(message) error) error {
	if err := c.request(kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, attrs); err != nil {
		return err
	}
	var failed error
	for {
		n, err := c.receive()
		if err != nil {
			return err
		}
		done, err := eachMessage(c.buf[:n], func(m message) {
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

// generation gives the number of transactions so far, modulo 2^32.
func (c *nfConn) generation() (uint32, error) {
	if err := c.request(unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, nil); err != nil {
		return 0, err
	}
	n, err := c.receive()
	if err != nil {
		return 0, err
	}
	var id uint32
	_, err = eachMessage(c.buf[:n], func(m message) { id = be32(attr(m.attrs, unix.NFTA_GEN_ID)) })
	return id, err
}

func (c *nfConn) request(kind, flags uint16, family uint8, attrs []byte) error {
	b := make([]byte, 0, netlinkHeader+nfgenHeader+len(attrs))
	b = binary.NativeEndian.AppendUint32(b, uint32(cap(b)))
	b = binary.NativeEndian.AppendUint16(b, unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence and port: the socket has one request at a time
	b = append(b, family, unix.NFNETLINK_V0, 0, 0)
	b = append(b, attrs...)
	return os.NewSyscallError("netlink send", unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

func (c *nfConn) receive() (int, error) {
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n, os.NewSyscallError("netlink receive", err)
	}
}

// eachMessage calls visit for each nftables message in b. done says that a dump ended.
func eachMessage(b []byte, visit func(message)) (done bool, err error) {
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
			visit(message{kind & 0xff, body[0], body[nfgenHeader:]})
		}
		b = b[min(align(size), len(b)):]
	}
	return false, nil
}

// eachAttr walks over netlink attributes.
func eachAttr(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			size := int(binary.NativeEndian.Uint16(b))
			if size < 4 || size > len(b) || !yield(binary.NativeEndian.Uint16(b[2:])&attrTypeMask, b[4:size]) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// attr gives the first attribute of the type; nil when there is none.
func attr(b []byte, typ uint16) []byte {
	for t, v := range eachAttr(b) {
		if t == typ {
			return v
		}
	}
	return nil
}

func appendAttr(b []byte, typ uint16, text string) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(text)+1))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, text...)
	return append(b, make([]byte, align(len(text)+1)-len(text))...)
}

func align(n int) int { return (n + 3) &^ 3 }

func be32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// cString gives the text of an attribute without the zero at its end.
func cString(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == 0 {
		return b[:n-1]
	}
	return b
}

func netlinkFamily(f plan.Family) uint8 {
	if f == plan.IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}
