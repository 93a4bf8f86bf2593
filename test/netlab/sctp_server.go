package netlab

import (
	"context"
	"io"
	"net"
	"net/netip"
)

// serveSCTP responds to every INIT that arrives at one address and port. The kernel delivers each SCTP packet to all
// raw sockets with the packet's destination address, so a server must ignore packets to other ports.
func serveSCTP(name string, at netip.AddrPort) (io.Closer, error) {
	conn, err := (&net.ListenConfig{}).ListenPacket(context.Background(), rawNetwork(at.Addr()), at.Addr().String())
	if err != nil {
		return nil, err
	}
	go func() {
		buf := make([]byte, 1500)
		for {
			n, peer, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			p, ok := parseSCTP(buf[:n])
			if !ok || p.chunk != sctpInit || p.to != at.Port() {
				continue
			}
			src, ok := netip.AddrFromSlice(peer.(*net.IPAddr).IP)
			if !ok {
				continue
			}
			answer := sctpPacket{
				from: p.to, to: p.from, tag: p.initTag, chunk: sctpInitAck, initTag: ^p.initTag | 1,
				cookie: greeting(name, netip.AddrPortFrom(src.Unmap(), p.from)),
			}
			_, _ = conn.WriteTo(answer.marshal(), peer)
		}
	}()
	return conn, nil
}

func rawNetwork(a netip.Addr) string {
	if a.Is4() {
		return "ip4:132"
	}
	return "ip6:132"
}
