package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A diagRequest is struct inet_diag_req_v2 of the kernel's linux/inet_diag.h, and a socket's identity struct inet_diag_sockid: ports,
// addresses, interface and cookie.
type diagRequest struct {
	family uint8
	id     [diagIDSize]byte
}

const (
	diagIDSize  = 48
	diagIDStart = 4  // in struct inet_diag_msg
	diagCookie  = 40 // in the identity
)

func (r *diagRequest) Len() int { return 8 + diagIDSize }

func (r *diagRequest) Serialize() []byte {
	b := make([]byte, 8, r.Len())
	b[0], b[1] = r.family, unix.IPPROTO_UDP
	binary.NativeEndian.PutUint32(b[4:], 1<<32-1) // in every state
	return append(b, r.id[:]...)
}

// endOrphans ends connected sockets of UDP whose endpoint does not serve any more: nobody would answer them, and unlike those of TCP
// they would not come to know. Their program gets an error, as it would when the endpoint refused. It gives how many there were.
func (t *tables) endOrphans(connections table[uint64, socketsConnection]) (n int, err error) {
	orphans, err := t.orphans(connections)
	if err != nil || len(orphans) == 0 {
		return 0, err
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		request.AddData(&diagRequest{family: family})
		sockets, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // no such sockets, or a kernel without their list
		}
		if err != nil {
			return n, fmt.Errorf("list of UDP sockets: %w", err)
		}
		for _, s := range sockets {
			if len(s) < diagIDStart+diagIDSize {
				continue
			}
			r := &diagRequest{family: s[0], id: [diagIDSize]byte(s[diagIDStart:])}
			cookie := binary.NativeEndian.Uint64(r.id[diagCookie:])
			if !orphans[cookie] {
				continue
			}
			delete(orphans, cookie)
			destroy := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
			destroy.AddData(r)
			switch _, err := destroy.Execute(unix.NETLINK_INET_DIAG, 0); {
			case err == nil:
				n++
			case !errors.Is(err, unix.ENOENT): // it was closed
				return n, fmt.Errorf("end of a UDP socket (CONFIG_INET_DIAG_DESTROY): %w", err)
			}
		}
	}
	return n, nil
}

// orphans gives the cookies of sockets that were sent to what does not serve any more, and forgets them.
func (t *tables) orphans(connections table[uint64, socketsConnection]) (map[uint64]bool, error) {
	out := map[uint64]bool{}
	var lookup error
	err := connections.each(func(cookie uint64, c socketsConnection) {
		k, v := socketsMemberKey{Addr: c.Addr, Service: c.Service, Port: c.Port}, uint8(0)
		switch err := t.members.Lookup(&k, &v); {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			out[cookie] = true
		case err != nil:
			lookup = err
		}
	})
	if err = errors.Join(err, lookup); err != nil {
		return nil, err
	}
	for cookie := range out {
		_ = connections.Delete(&cookie)
	}
	return out, nil
}
