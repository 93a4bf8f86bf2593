package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"edgeway/proxiers/plan"
)

// Serve starts servers on one address of the host, one for each protocol. Until the test ends, the servers respond to
// every line on a TCP connection, every UDP datagram and every SCTP INIT. The response consists of the given name and
// the peer's address.
func (h *Host) Serve(name string, at netip.AddrPort, protocols ...plan.Protocol) error {
	for _, p := range protocols {
		if _, err := h.Start(name, at, p); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a server for one protocol. The server runs until the caller calls stop.
func (h *Host) Start(name string, at netip.AddrPort, p plan.Protocol) (stop func() error, err error) {
	var r Reply
	if err := h.call("Serve", Request{Server: name, At: at, Flow: Flow{Protocol: p}}, &r); err != nil {
		return nil, fmt.Errorf("server %s on %s/%s: %w", name, at, p, err)
	}
	return func() error { return h.call("Close", r.ID, &struct{}{}) }, nil
}

func serve(name string, at netip.AddrPort, p plan.Protocol) (io.Closer, error) {
	switch p {
	case plan.TCP:
		return serveTCP(name, at)
	case plan.UDP:
		return serveUDP(name, at)
	case plan.SCTP:
		return serveSCTP(name, at)
	}
	return nil, errors.New("netlab has no server for the protocol")
}

func greeting(name string, peer any) []byte { return fmt.Appendf(nil, "%s %s\n", name, peer) }

func serveTCP(name string, at netip.AddrPort) (io.Closer, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at.String())
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerLines(conn, greeting(name, conn.RemoteAddr()))
		}
	}()
	return l, nil
}

func answerLines(conn net.Conn, answer []byte) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

func serveUDP(name string, at netip.AddrPort) (io.Closer, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	go func() {
		buf := make([]byte, 1500)
		for {
			_, peer, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
			_, _ = conn.WriteToUDPAddrPort(greeting(name, peer), peer)
		}
	}()
	return conn, nil
}
