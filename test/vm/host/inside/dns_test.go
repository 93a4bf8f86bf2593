package inside

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"edgeway/test/netlab"
)

// nameServer is a name server that resolves only one name and records the names that clients query.
type nameServer struct {
	name string
	addr netip.Addr

	mu    sync.Mutex
	asked []string
}

func serveNames(t *testing.T, on *netlab.Host, at netip.AddrPort, name string, addr netip.Addr) *nameServer {
	t.Helper()
	s := &nameServer{name: name, addr: addr}
	var datagrams net.PacketConn
	var streams net.Listener
	err := on.Do(func() (err error) {
		var config net.ListenConfig
		if datagrams, err = config.ListenPacket(t.Context(), "udp", at.String()); err == nil {
			streams, err = config.Listen(t.Context(), "tcp", at.String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagrams.Close(); streams.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := datagrams.ReadFrom(buf)
			if err != nil {
				return
			}
			if out, err := s.resolve(buf[:n]); err == nil {
				_, _ = datagrams.WriteTo(out, from)
			}
		}
	}()
	go func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			go s.serveTCP(conn)
		}
	}()
	return s
}

// serveTCP serves queries over a TCP connection. A length field precedes each message.
func (s *nameServer) serveTCP(conn net.Conn) {
	defer conn.Close()
	for {
		var size uint16
		if binary.Read(conn, binary.BigEndian, &size) != nil {
			return
		}
		question := make([]byte, size)
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		out, err := s.resolve(question)
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}

// resolve returns the response to a query. The response contains the address of the only name that the server resolves,
// or NXDOMAIN.
func (s *nameServer) resolve(message []byte) ([]byte, error) {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	s.mu.Lock()
	s.asked = append(s.asked, name)
	s.mu.Unlock()
	reply := dnsmessage.Header{
		ID: header.ID, Response: true, Authoritative: true,
		RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
	}
	if name != s.name {
		reply.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, reply)
	err = errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers())
	if name == s.name && q.Type == dnsmessage.TypeA {
		err = errors.Join(err, b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET},
			dnsmessage.AResource{A: s.addr.As4()}))
	}
	if err != nil {
		return nil, err
	}
	return b.Finish()
}

func (s *nameServer) heard(suffix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.asked), func(name string) bool { return !strings.HasSuffix(name, suffix) })
}
