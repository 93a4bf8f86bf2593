package netlab

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// socket is a connected, non-blocking socket. It does not use package net, because the lab must read the error queue to
// distinguish an ICMP error from a reset.
type socket struct {
	flow Flow
	port uint16
	fd   *os.File
	raw  syscall.RawConn
}

func newSocket(f Flow, port uint16) (s *socket, err error) {
	s = &socket{flow: f, port: port}
	if s.fd, err = s.open(); err != nil {
		return nil, err
	}
	if s.raw, err = s.fd.SyscallConn(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *socket) open() (*os.File, error) {
	domain, level, recvErr := unix.AF_INET, unix.SOL_IP, unix.IP_RECVERR
	if s.flow.To.Addr().Is6() {
		domain, level, recvErr = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	kind := map[plan.Protocol]int{
		plan.TCP: unix.SOCK_STREAM, plan.UDP: unix.SOCK_DGRAM,
		plan.SCTP: unix.SOCK_RAW,
	}[s.flow.Protocol]
	fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(s.flow.Protocol))
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptInt(fd, level, recvErr, 1)
	if s.flow.Mark != 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(s.flow.Mark)))
	}
	if s.flow.From.IsValid() {
		err = errors.Join(err, unix.Bind(fd, s.sockaddr(netip.AddrPortFrom(s.flow.From, s.port))))
	}
	if s.flow.Protocol == plan.TCP {
		// With SO_LINGER and a timeout of 0, Close resets the connection and thereby frees the port immediately.
		err = errors.Join(err, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	}
	if err == nil {
		err = unix.Connect(fd, s.sockaddr(s.flow.To))
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "lab socket"), nil
}

// sockaddr omits the port for raw sockets, because for IPv6 the kernel would interpret the port as a protocol number.
func (s *socket) sockaddr(a netip.AddrPort) unix.Sockaddr {
	port := int(a.Port())
	if s.flow.Protocol == plan.SCTP {
		port = 0
	}
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: port}
}

// Close closes the socket, which resets a TCP connection.
func (s *socket) Close() error { return s.fd.Close() }

// awaitEstablished waits until a TCP connection is established, and then returns an outcome with the Result Served.
func (s *socket) awaitEstablished(wait time.Duration) Outcome {
	_ = s.fd.SetDeadline(time.Now().Add(wait))
	err := s.raw.Write(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, _ := unix.Poll(p, 0)
		return n > 0
	})
	if err != nil {
		return s.failure(err)
	}
	var code int
	if err := s.raw.Control(func(fd uintptr) {
		code,
			err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
	}); err != nil {
		return failed(err)
	}
	if code != 0 {
		return s.failure(unix.Errno(code))
	}
	return Outcome{Result: Served}
}

func (s *socket) ask(deadline time.Time) Outcome {
	_ = s.fd.SetDeadline(deadline)
	if s.flow.Protocol == plan.SCTP {
		return s.askSCTP()
	}
	if _, err := s.fd.Write([]byte("?\n")); err != nil && !isLocalDrop(err) {
		return s.failure(err)
	}
	buf := make([]byte, 1500)
	n, err := s.fd.Read(buf)
	if err != nil {
		return s.failure(err)
	}
	return parseGreeting(string(buf[:n]))
}

// askSCTP sends an INIT and waits for the INIT-ACK. A raw socket also receives packets and ICMP errors for other flows
// between the same two addresses. askSCTP ignores them.
func (s *socket) askSCTP() Outcome {
	init := sctpPacket{from: s.port, to: s.flow.To.Port(), chunk: sctpInit, initTag: uint32(s.port)<<16 | 1}
	use, buf := s.fd.Write, init.marshal()
	for sent := false; ; {
		n, err := use(buf)
		if isLocalDrop(err) {
			err = nil
		}
		switch {
		case err != nil:
			outcome := s.failure(err)
			if outcome.Result != Failed || !isICMP(err) {
				return outcome
			}
		case !sent:
			sent, use, buf = true, s.fd.Read, make([]byte, 1500)
		default:
			if p, ok := parseSCTP(s.stripIPHeader(buf[:n])); ok && p.chunk == sctpInitAck && p.to == s.port {
				return parseGreeting(string(p.cookie))
			}
		}
	}
}

func isICMP(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// isLocalDrop reports whether a rule on the sender's host dropped the packet. The sender receives EPERM, but the
// outcome must be the same as for a packet that another host drops. If the rule rejects the packet, an ICMP error
// follows.
func isLocalDrop(err error) bool { return errors.Is(err, unix.EPERM) }

// stripIPHeader removes the IP header. Raw sockets deliver the header for IPv4 but not for IPv6.
func (s *socket) stripIPHeader(b []byte) []byte {
	if s.flow.To.Addr().Is6() || len(b) == 0 {
		return b
	}
	return b[min(len(b), int(b[0]&0xf)*4):]
}

func (s *socket) failure(err error) Outcome {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Outcome{Result: Silent}
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		return Outcome{Result: Reset}
	}
	if answer, told := s.readICMPError(); told {
		return Outcome{Result: answer}
	}
	if errors.Is(err, unix.ECONNREFUSED) && s.flow.Protocol == plan.TCP {
		return Outcome{Result: Reset}
	}
	return failed(err)
}

// readICMPError reads this flow's ICMP errors from the socket's error queue. Since Linux 5.15, the kernel also fills
// the queue while a TCP socket is connecting.
func (s *socket) readICMPError() (answer Result, told bool) {
	_ = s.raw.Control(func(fd uintptr) {
		packet, control := make([]byte, 256), make([]byte, 512)
		for {
			n, oobn, _, _, err := unix.Recvmsg(int(fd), packet, control, unix.MSG_ERRQUEUE)
			if err != nil {
				return
			}
			// A raw socket's queue holds errors for all flows between the two addresses.
			mine := s.flow.Protocol != plan.SCTP || n >= 4 &&
				binary.BigEndian.Uint16(packet) == s.port && binary.BigEndian.Uint16(packet[2:]) == s.flow.To.Port()
			if a, ok := answerOf(control[:oobn]); ok && mine {
				answer, told = a, true
			}
		}
	})
	return answer, told
}

func answerOf(control []byte) (Result, bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		// The fields of struct sock_extended_err are errno (4 bytes), origin, type and code.
		if len(m.Data) < 7 {
			continue
		}
		switch origin, kind, code := m.Data[4], m.Data[5], m.Data[6]; {
		case origin == unix.SO_EE_ORIGIN_ICMP && kind == 3 && code == 3,
			origin == unix.SO_EE_ORIGIN_ICMP6 && kind == 1 && code == 4:
			return Refused, true
		case origin == unix.SO_EE_ORIGIN_ICMP && kind == 3 && code <= 1, // network unreachable, host unreachable
			origin == unix.SO_EE_ORIGIN_ICMP6 && kind == 1 && (code == 0 || code == 3): // no route, address unreachable
			return Unreachable, true
		}
	}
	return 0, false
}
