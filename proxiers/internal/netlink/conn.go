// Package netlink communicates with netfilter: it reads, changes and watches nftables rules, including the rules that
// iptables-nft stores in nftables, and reads and deletes connection-tracking entries.
//
// The package opens sockets with mdlayher/netlink, but parses messages and attributes itself. A dump of 10,000 Services
// contains 70,000 elements (3 MB). The package reads a dump through one buffer and allocates no memory for the
// individual messages. mdlayher/netlink allocates a buffer for each datagram and a slice of attributes for each
// message. google/nftables (0.3.0) allocates memory for each element of a set. Furthermore, google/nftables cannot make
// a batch conditional on the last transaction, and truncates attributes longer than 64 KiB.
package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

const (
	netlinkHeader  = unix.NLMSG_HDRLEN
	nfgenHeader    = 4
	receiveTimeout = 10 * time.Second // the kernel responds immediately
)

// Conn is a netlink socket for nftables. A Conn is safe for concurrent use. Code that uses a Conn frequently should
// keep it open. Closing a netfilter socket after a transaction takes 16 ms, because the kernel (6.18) first frees the
// objects that the transaction deleted.
type Conn struct {
	// MaxBatchSize is the maximum size of a batch that Commit sends, in bytes.
	MaxBatchSize int

	mu   sync.Mutex // held during a request and its response
	sock *netlink.Conn
	raw  syscall.RawConn
	buf  []byte
	// port is the socket's netlink address.
	port atomic.Uint32
	// stuck reports whether the Conn has left part of a response unread. The kernel accepts no further requests on a
	// stuck socket.
	stuck bool
}

// Dial opens a socket in the calling thread's network namespace.
func Dial() (*Conn, error) {
	c := &Conn{buf: make([]byte, 1<<16)}
	return c, c.open()
}

func (c *Conn) open() error {
	sock, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("netlink socket: %w", err)
	}
	// Without CAP_NET_ADMIN in the initial user namespace, the kernel limits the write buffer and thus the maximum
	// batch size.
	_ = sock.SetWriteBuffer(writeBuffer)
	_ = sock.SetOption(netlink.ExtendedAcknowledge, true)
	_ = sock.SetOption(netlink.CapAcknowledge, true)
	raw, err := sock.SyscallConn()
	if err == nil {
		err = c.describe(raw)
	}
	if err != nil {
		_ = sock.Close()
		return fmt.Errorf("netlink socket: %w", err)
	}
	c.sock, c.raw, c.stuck = sock, raw, false
	return nil
}

func (c *Conn) describe(raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		var addr unix.Sockaddr
		if addr, failed = unix.Getsockname(int(fd)); failed != nil {
			return
		}
		if own, ok := addr.(*unix.SockaddrNetlink); ok {
			c.port.Store(own.Pid)
		}
		size, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		c.MaxBatchSize, failed = size-32, err // netlink_sendmsg has this limit
	})
	return errors.Join(err, failed)
}

// Close closes the socket.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.sock.Close()
	c.stuck = false
}

// Message is a netlink message about nftables.
type Message struct {
	// Kind is an NFT_MSG constant.
	Kind uint16
	// Family is an NFPROTO constant.
	Family uint8
	// Port is the netlink address of the socket that sent the transaction, if the message is a notification.
	Port uint32
	// Attrs is valid only until the Conn reads the next message.
	Attrs []byte
}

// Dump requests all objects of a kind, and calls visit for each message until visit returns an error. Dump deliberately
// ignores the NLM_F_DUMP_INTR flag (a table changed during the dump), because the Watcher reports changes to Edgeway's
// tables. Kernel errors are unix.Errno values. visit must not use the Conn.
func (c *Conn) Dump(kind uint16, family uint8, attrs []byte, visit func(Message) error) error {
	return c.ask(netlink.Dump, kind, append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attrs...), visit)
}

// Get requests a single object, or the elements that the attributes specify. Like Dump, Get calls visit for each
// message. If an object does not exist, Get stops and returns ENOENT.
func (c *Conn) Get(kind uint16, family uint8, attrs []byte, visit func(Message) error) error {
	return c.ask(netlink.Acknowledge, kind, append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attrs...), visit)
}

func (c *Conn) ask(how netlink.HeaderFlags, kind uint16, body []byte, visit func(Message) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.request(kind, netlink.Request|how, body); err != nil {
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
		if done || err != nil {
			c.stuck = !done
			return errors.Join(failed, err)
		}
	}
}

// Generation returns the kernel's transaction count for the network namespace, modulo 2^32.
func (c *Conn) Generation() (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.request(unix.NFT_MSG_GETGEN, netlink.Request,
		[]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}); err != nil {
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

func (c *Conn) request(kind uint16, flags netlink.HeaderFlags, body []byte) error {
	if err := c.repair(); err != nil {
		return err
	}
	_, err := c.sock.Send(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: flags},
		Data:   body,
	})
	return err
}

// repair reopens the socket if it is stuck.
func (c *Conn) repair() error {
	if !c.stuck {
		return nil
	}
	_ = c.sock.Close()
	return c.open()
}

func (c *Conn) receive() (n int, err error) {
	if err := c.sock.SetReadDeadline(time.Now().Add(receiveTimeout)); err != nil {
		return 0, err
	}
	late := c.raw.Read(func(fd uintptr) bool {
		n, err = read(fd, c.buf)
		return !errors.Is(err, unix.EAGAIN)
	})
	if late != nil {
		err = late
	}
	c.stuck = err != nil
	return n, os.NewSyscallError("netlink receive", err)
}

// read reads from a non-blocking socket, and repeats the system call if a signal interrupts it.
func read(fd uintptr, buf []byte) (n int, err error) {
	for {
		if n, err = unix.Read(int(fd), buf); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// EachMessage calls visit for each nftables message in b. done reports whether b contains the end of a response.
func EachMessage(b []byte, visit func(Message)) (done bool, err error) {
	for len(b) >= netlinkHeader {
		size := int(binary.NativeEndian.Uint32(b))
		if size < netlinkHeader || size > len(b) {
			return false, fmt.Errorf("invalid netlink message length %d in a buffer of %d bytes", size, len(b))
		}
		kind, body := binary.NativeEndian.Uint16(b[4:]), b[netlinkHeader:size]
		switch {
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			errno := -int32(binary.NativeEndian.Uint32(body))
			if errno != 0 {
				err = os.NewSyscallError("netlink request", unix.Errno(errno))
			}
			return true, err
		case kind>>8 == unix.NFNL_SUBSYS_NFTABLES && len(body) >= nfgenHeader:
			visit(Message{kind & 0xff, body[0], binary.NativeEndian.Uint32(b[12:]), body[nfgenHeader:]})
		}
		b = b[min(align(size), len(b)):]
	}
	return false, nil
}

// EachTable calls visit for each nft table of a family, or of all families if family is NFPROTO_UNSPEC. A kernel
// without nf_tables has no tables, which is not an error.
func (c *Conn) EachTable(family uint8, visit func(family uint8, name string)) error {
	err := c.Dump(unix.NFT_MSG_GETTABLE, family, nil, func(m Message) error {
		visit(m.Family, string(Text(Attr(m.Attrs, AttrTable))))
		return nil
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read nft tables: %w", err)
	}
	return nil
}

// Family returns the kernel's number for an address family: NFPROTO_IPV4 or NFPROTO_IPV6.
func Family(f plan.Family) uint8 {
	if f == plan.IPv4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}
