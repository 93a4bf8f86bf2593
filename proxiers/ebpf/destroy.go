package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// diagRequest represents the kernel's struct inet_diag_req_v2 for UDP. id holds a struct inet_diag_sockid, which
// identifies a socket by ports, addresses, interface and cookie.
type diagRequest struct {
	family uint8
	id     [diagIDSize]byte
}

const (
	diagIDSize  = 48
	diagIDStart = 4 // offset in struct inet_diag_msg
	// Offsets in struct inet_diag_sockid.
	diagRemotePort = 2
	diagRemote     = 20
	diagCookie     = 40
)

func (r *diagRequest) Len() int { return 8 + diagIDSize }

func (r *diagRequest) Serialize() []byte {
	b := make([]byte, 8, r.Len())
	b[0], b[1] = r.family, unix.IPPROTO_UDP
	binary.NativeEndian.PutUint32(b[4:], 1<<32-1) // all socket states
	return append(b, r.id[:]...)
}

func (r *diagRequest) cookie() uint64 { return binary.NativeEndian.Uint64(r.id[diagCookie:]) }

func (r *diagRequest) remote() netip.AddrPort {
	a := netip.AddrFrom4([4]byte(r.id[diagRemote:]))
	if r.family == unix.AF_INET6 {
		a = netip.AddrFrom16([16]byte(r.id[diagRemote:])).Unmap()
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(r.id[diagRemotePort:]))
}

func listUDP() (sockets []*diagRequest, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		request.AddData(&diagRequest{family: family})
		messages, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // the host has no such sockets, or the kernel cannot list them
		}
		if err != nil {
			return nil, fmt.Errorf("list UDP sockets: %w", err)
		}
		for _, m := range messages {
			if len(m) >= diagIDStart+diagIDSize {
				sockets = append(sockets, &diagRequest{family: m[0], id: [diagIDSize]byte(m[diagIDStart:])})
			}
		}
	}
	return sockets, nil
}

// destroySocket asks the kernel to disconnect a socket and return ECONNABORTED to the application.
func destroySocket(r *diagRequest) error {
	request := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	request.AddData(r)
	if _, err := request.Execute(unix.NETLINK_INET_DIAG, 0); err != nil {
		return fmt.Errorf("destruction of a UDP socket (needs CONFIG_INET_DIAG_DESTROY): %w", err)
	}
	return nil
}

type retry struct {
	at    time.Time
	after time.Duration
}

// schedule sets the time of the next attempt. Each call doubles the delay, up to maxRetryDelay.
func (r *retry) schedule() {
	r.after = min(max(2*r.after, minRetryDelay), maxRetryDelay)
	r.at = time.Now().Add(r.after)
}

// orphanDestroyer destroys UDP sockets connected to endpoints that no longer serve connections. An orphaned socket
// receives no responses, and the kernel reports no error to the application.
type orphanDestroyer struct {
	destroy func(*diagRequest) error
	retry
	// unlistedCookies holds the cookies of orphaned sockets that the kernel did not list during the last attempt to
	// destroy them. If a socket is unlisted, either its connect call has not returned yet, or the application closed
	// the socket while the release program was detached.
	unlistedCookies map[uint64]bool
}

// destroyOrphans destroys the orphaned sockets in connections and returns how many it destroyed. A connection stays in
// the map until destroyOrphans has destroyed its socket, so the next call retries after a failure.
func (o *orphanDestroyer) destroyOrphans(
	t *planMaps, connections typedMap[uint64, socketsConnection],
) (n int, err error) {
	defer func() {
		if err != nil || len(o.unlistedCookies) > 0 {
			o.schedule()
		} else {
			o.retry = retry{}
		}
	}()
	found, err := t.orphans(connections)
	if err != nil || len(found) == 0 {
		o.unlistedCookies = nil
		return 0, err
	}
	sockets, err := listUDP()
	if err != nil {
		return 0, err
	}
	var failed []error
	unlisted := map[uint64]bool{}
	for cookie := range found {
		unlisted[cookie] = true
	}
	for _, r := range sockets {
		c, orphan := found[r.cookie()]
		if !orphan {
			continue
		}
		delete(unlisted, r.cookie())
		if r.remote() == c.endpoint() { // otherwise the application has connected the socket to another address
			if err := o.destroy(r); err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: the socket is closed
				failed = append(failed, err)
				continue
			}
			n++
		}
		forget(connections, r.cookie(), c)
	}
	o.forgetUnlisted(connections, found, unlisted)
	return n, errors.Join(failed...)
}

// forgetUnlisted deletes the map entries of orphaned sockets that the kernel did not list during two consecutive
// attempts to destroy them.
func (o *orphanDestroyer) forgetUnlisted(
	connections typedMap[uint64, socketsConnection], found map[uint64]socketsConnection, unlisted map[uint64]bool,
) {
	for cookie := range unlisted {
		if o.unlistedCookies[cookie] {
			forget(connections, cookie, found[cookie])
			delete(unlisted, cookie)
		}
	}
	o.unlistedCookies = unlisted
}

// forget removes a connection from the map unless the connection's socket now has a different endpoint.
func forget(connections typedMap[uint64, socketsConnection], cookie uint64, was socketsConnection) {
	var now socketsConnection
	if connections.Lookup(&cookie, &now) == nil && now == was {
		_ = connections.Delete(&cookie) // the entry may be gone because the socket was closed
	}
}

func (c *socketsConnection) endpoint() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(c.Addr.Byte).Unmap(), networkOrder(c.Port))
}

// orphans returns the connections to endpoints that are no longer members of their Service. The keys of the returned
// map are socket cookies.
func (t *planMaps) orphans(connections typedMap[uint64, socketsConnection]) (map[uint64]socketsConnection, error) {
	out, serves := map[uint64]socketsConnection{}, map[socketsMemberKey]bool{}
	var lookup error
	err := connections.forEach(func(cookie uint64, c socketsConnection) {
		k, v := socketsMemberKey{Addr: c.Addr, Service: c.Service, Port: c.Port}, uint8(0)
		if _, known := serves[k]; !known {
			err := t.members.Lookup(&k, &v)
			if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				lookup = err
				return
			}
			serves[k] = err == nil
		}
		if !serves[k] {
			out[cookie] = c
		}
	})
	return out, errors.Join(err, lookup)
}

// destroyOrphans destroys orphaned UDP sockets. The caller must hold mu.
func (s *shortcuts) destroyOrphans() {
	n, err := s.orphans.destroyOrphans(&s.tables, typedMap[uint64, socketsConnection]{s.objects.Connections})
	if err != nil {
		s.logger.Warn("cannot disconnect UDP sockets from removed endpoints", "error", err,
			"retry_after", s.orphans.after)
	}
	if n > 0 {
		s.logger.Debug("destroyed UDP sockets connected to removed endpoints", "sockets", n)
	}
}
