package ebpf

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// maxNumber is the highest number that the backend assigns to a set or a ServicePort. The self-test's own elements use
// higher numbers.
const maxNumber = 1<<32 - 16

const selfTestPort = 237

// selfTestElements is the number of elements that the self-test adds to each map.
const selfTestElements = 2

// selfTestAddr returns the self-test frontend's address, which no host uses (RFC 1112, RFC 6666). The self-test's
// endpoint is a loopback address. Connecting a datagram socket sends no packet.
func selfTestAddr(f plan.Family) netip.Addr {
	if f == plan.IPv6 {
		return netip.MustParseAddr("100::ed6e:237")
	}
	return netip.AddrFrom4([4]byte{240, 0, 237, 110})
}

func selfTestEndpoint(f plan.Family) netip.AddrPort {
	if f == plan.IPv6 {
		return netip.AddrPortFrom(netip.IPv6Loopback(), selfTestPort)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), selfTestPort)
}

func selfTestSet(f plan.Family) uint32 {
	if f == plan.IPv6 {
		return maxNumber + 2
	}
	return maxNumber + 1
}

// addSelfTest adds the self-test's elements to each map. If another program empties a map, selfTest or requireSelfTest
// reports the missing elements.
func addSelfTest(st *step) {
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		svc := &plan.ServicePort{Name: plan.ServicePortName{Protocol: plan.UDP}, Family: f}
		set, e := selfTestSet(f), selfTestEndpoint(f)
		k := frontendKey(svc, &plan.Frontend{Addr: selfTestAddr(f), Port: selfTestPort}, plan.FromHost)
		st.nextFrontends[k] = socketsFrontend{Service: set, Set: set, Count: 1, Flags: probing}
		st.newSlots.add(socketsSlotKey{Set: set}, endpoints([]plan.Endpoint{{Addr: e}})[0])
		st.members[memberKey(set, e)] = 0
		st.addresses[addressOf(selfTestAddr(f))] = 0
	}
}

// selfTest connects a socket as an application would, and returns an error unless getsockname returns a loopback
// address and getpeername returns the frontend's address.
func selfTest(f plan.Family) (err error) {
	domain := unix.AF_INET
	if f == plan.IPv6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("self-test over %s: %w", f, err)
	}
	defer func() { _ = unix.Close(fd) }()
	want := netip.AddrPortFrom(selfTestAddr(f), selfTestPort)
	if err := unix.Connect(fd, sockaddr(want)); err != nil {
		return fmt.Errorf("self-test over %s: the BPF programs did not connect a socket to an endpoint: %w", f, err)
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("self-test over %s: %w", f, err)
	}
	if a := addrPortOf(local); !a.Addr().IsLoopback() {
		return fmt.Errorf("self-test over %s: the BPF programs connected a socket to %s instead of an endpoint",
			f, a.Addr())
	}
	remote, err := unix.Getpeername(fd)
	if err != nil {
		return fmt.Errorf("self-test over %s: %w", f, err)
	}
	if a := addrPortOf(remote); a != want {
		return fmt.Errorf("self-test over %s: the socket reports the peer address %s instead of the requested address",
			f, a)
	}
	return nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func addrPortOf(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// requireSelfTest returns an error if a map that selfTest does not use lacks the self-test's elements.
func (t *planMaps) requireSelfTest(families []plan.Family) error {
	for _, f := range families {
		m, a, v := memberKey(selfTestSet(f), selfTestEndpoint(f)), addressOf(selfTestAddr(f)), uint8(0)
		if err := errors.Join(t.members.Lookup(&m, &v), t.addresses.Lookup(&a, &v)); err != nil {
			return fmt.Errorf("a BPF map lacks an element of the self-test: %w", err)
		}
	}
	return nil
}
