// Package nameserver provides a DNS server with configurable responses and a DNS forwarder, for tests.
package nameserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Server responds to DNS queries for the addresses of host names, over UDP and TCP. It truncates UDP responses of more
// than 512 bytes.
type Server struct {
	// Queries is the number of received queries.
	Queries atomic.Int64

	mu    sync.Mutex
	names map[string][]netip.Addr
}

// Set replaces the addresses of a host name. If addrs is empty, the server responds with NXDOMAIN.
func (s *Server) Set(name string, addrs ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string][]netip.Addr{}
	}
	s.names[strings.TrimSuffix(name, ".")+"."] = addrs
}

// Start starts a Server on 127.0.0.1 that knows one host name, and returns a resolver that queries this Server.
func Start(t testing.TB, name string, addrs ...netip.Addr) (*Server, *net.Resolver) {
	t.Helper()
	udp, tcp := listen(t)
	t.Cleanup(func() { udp.Close(); tcp.Close() })
	server := new(Server)
	server.Set(name, addrs...)
	go server.Serve(udp, tcp)
	return server, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, tcp.Addr().String())
	}}
}

// listen opens a UDP socket and a TCP socket on the same port. The kernel chooses a port that is free for TCP, but
// another program may use the port for UDP, so listen tries several ports.
func listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	var problem error
	for range 100 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return udp, tcp
		}
		problem = errors.Join(err, tcp.Close())
	}
	t.Fatal(problem)
	return nil, nil
}

// Addrs parses addresses.
func Addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// Serve responds to queries until the caller closes both sockets.
func (s *Server) Serve(udp net.PacketConn, tcp net.Listener) {
	serve(udp, tcp, func(query []byte, limit int) ([]byte, error) {
		reply, err := s.answer(query)
		if err == nil && len(reply) > limit {
			reply, err = truncated(reply)
		}
		return reply, err
	})
}

// Forward forwards queries to a name server and returns the name server's responses. dial opens the connections to the
// name server.
func Forward(udp net.PacketConn, tcp net.Listener, dial func(network string) (net.Conn, error)) {
	serve(udp, tcp, func(query []byte, limit int) ([]byte, error) {
		conn, err := dial("tcp")
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if err := writeTCP(conn, query); err != nil {
			return nil, err
		}
		reply, err := readTCP(conn)
		if err == nil && len(reply) > limit {
			reply, err = truncated(reply)
		}
		return reply, err
	})
}

func serve(udp net.PacketConn, tcp net.Listener, answer func(query []byte, limit int) ([]byte, error)) {
	var both sync.WaitGroup
	both.Go(func() {
		for query := make([]byte, 4096); ; {
			n, from, err := udp.ReadFrom(query)
			if err != nil {
				return
			}
			question := append([]byte(nil), query[:n]...)
			go func() {
				if reply, err := answer(question, 512); err == nil {
					_, _ = udp.WriteTo(reply, from)
				}
			}()
		}
	})
	both.Go(func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for {
					query, err := readTCP(conn)
					if err != nil {
						return
					}
					reply, err := answer(query, 1<<16-1)
					if err != nil || writeTCP(conn, reply) != nil {
						return
					}
				}
			}()
		}
	})
	both.Wait()
}

func (s *Server) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	if len(m.Questions) != 1 {
		return nil, errors.New("not one question")
	}
	s.Queries.Add(1)
	q := m.Questions[0]
	s.mu.Lock()
	addrs := s.names[strings.ToLower(q.Name.String())]
	s.mu.Unlock()
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true},
		Questions: m.Questions,
	}
	if len(addrs) == 0 {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			reply.Answers = append(reply.Answers,
				dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			reply.Answers = append(reply.Answers,
				dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return reply.Pack()
}

func truncated(reply []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(reply); err != nil {
		return nil, err
	}
	m.Truncated, m.Answers = true, nil
	return m.Pack()
}

func readTCP(conn net.Conn) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(conn, message)
	return message, err
}

func writeTCP(conn net.Conn, message []byte) error {
	if len(message) > 1<<16-1 {
		return fmt.Errorf("message of %d bytes", len(message))
	}
	_, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}
