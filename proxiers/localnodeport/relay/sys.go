package relay

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of the loops. None of them can block, so that they go without the scheduler's knowledge
// (RawSyscall), and none allocates. A result of -1 comes with an errno.

func accept(listener int32, from *unix.RawSockaddrAny) (int32, unix.Errno) {
	size := uint32(unix.SizeofSockaddrAny)
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(from)),
		uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	return int32(fd), errno
}

// connect starts a dial of a new socket. The errno is EINPROGRESS while it continues.
func connect(fd int32, to netip.AddrPort) unix.Errno {
	var port [2]byte
	binary.BigEndian.PutUint16(port[:], to.Port())
	if addr := to.Addr(); addr.Is4() {
		sa := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: binary.NativeEndian.Uint16(port[:]), Addr: addr.As4()}
		_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unix.SizeofSockaddrInet4)
		return errno
	}
	sa := unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: binary.NativeEndian.Uint16(port[:]), Addr: to.Addr().As16()}
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unix.SizeofSockaddrInet6)
	return errno
}

func socket(to netip.AddrPort) (int32, unix.Errno) {
	family := uintptr(unix.AF_INET)
	if !to.Addr().Is4() {
		family = unix.AF_INET6
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return int32(fd), errno
}

func recv(fd int32, buf []byte, flags uintptr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))),
		uintptr(len(buf)), flags, 0, 0)
	return int(n), errno
}

func send(fd int32, buf []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))),
		uintptr(len(buf)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

func splice(from, to int32, n int) (int, unix.Errno) {
	moved, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n),
		unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	return int(moved), errno
}

func shutdownWrite(fd int32) {
	_, _, _ = unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
}

func closeFD(fd int32) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// setOption sets an option that is an int. A failure has no consequence worth handling.
func setOption(fd int32, level, name uintptr, value int32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), level, name, uintptr(unsafe.Pointer(&value)), 4, 0)
}

// resetFD closes so that the peer gets a reset, whatever is in flight.
func resetFD(fd int32) {
	linger := unix.Linger{Onoff: 1}
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&linger)), unix.SizeofLinger, 0)
	closeFD(fd)
}

// socketError is why a dial failed.
func socketError(fd int32) unix.Errno {
	var value int32
	size := uint32(4)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR,
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return unix.Errno(value)
}

func epollCtl(epoll int32, op uintptr, fd int32, event *unix.EpollEvent) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), op, uintptr(fd), uintptr(unsafe.Pointer(event)), 0, 0)
	return errno
}

// epollWait waits up to timeout milliseconds; -1: without limit. Only this call can block: with a timeout
// other than 0 the scheduler knows.
func epollWait(epoll int32, events []unix.EpollEvent, timeout int) (int, unix.Errno) {
	at, size := uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events))
	if timeout == 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), at, size, 0, 0, 0)
		return int(n), errno
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), at, size, uintptr(timeout), 0, 0)
	return int(n), errno
}

// addrPort reads the address of a client; the zero value when it is neither IPv4 nor IPv6.
func addrPort(from *unix.RawSockaddrAny) netip.AddrPort {
	switch from.Addr.Family {
	case unix.AF_INET:
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(from))
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), networkPort(sa.Port))
	case unix.AF_INET6:
		sa := (*unix.RawSockaddrInet6)(unsafe.Pointer(from))
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), networkPort(sa.Port))
	}
	return netip.AddrPort{}
}

func networkPort(raw uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], raw)
	return binary.BigEndian.Uint16(b[:])
}
