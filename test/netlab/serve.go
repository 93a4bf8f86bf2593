package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"edgeway/proxiers/plan"
)

// Serve answers on one address of the host, over each of the protocols: every line of a TCP
// connection, every UDP datagram and every SCTP INIT is answered with name and the peer's address as
// seen here. It ends with the lab.
func (h *Host) Serve(name string, at netip.AddrPort, protocols ...plan.Protocol) error {
	for _, p := range protocols {
		stop, err := h.Start(name, at, p)
		if err != nil {
			return err
		}
		h.onClose(stop)
	}
	return nil
}

// Start is Serve over one protocol, until stop is called.
func (h *Host) Start(name string, at netip.AddrPort, p plan.Protocol) (stop func() error, err error) {
	switch p {
	case plan.TCP:
		stop, err = h.serveTCP(name, at)
	case plan.UDP:
		stop, err = h.serveUDP(name, at)
	case plan.SCTP:
		stop, err = h.serveSCTP(name, at)
	default:
		err = errors.New("no server for this protocol")
	}
	if err != nil {
		return nil, fmt.Errorf("server %s on %s/%s: %w", name, at, p, err)
	}
	return stop, nil
}

// greeting is what a server answers.
func greeting(name string, peer any) []byte { return fmt.Appendf(nil, "%s %s\n", name, peer) }

func (h *Host) serveTCP(name string, at netip.AddrPort) (func() error, error) {
	var l net.Listener
	err := h.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", at.String())
		return err
	})
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
	return l.Close, nil
}

func answerLines(conn net.Conn, answer []byte) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

func (h *Host) serveUDP(name string, at netip.AddrPort) (func() error, error) {
	var conn *net.UDPConn
	err := h.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
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
	return conn.Close, nil
}
