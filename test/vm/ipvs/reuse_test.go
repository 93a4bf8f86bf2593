package ipvs

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/test/netlab"
)

// dialer returns a Dialer that can reuse a source address and port immediately.
func dialer(from netip.AddrPort) *net.Dialer {
	return &net.Dialer{
		Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(from),
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			return c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR,
					1)
			})
		},
	}
}

func ask(conn net.Conn) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(hangTimeout)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("\n")); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	name, _, _ := strings.Cut(line, " ")
	return name, err
}

// connectOnce opens a connection, requests the server's name and resets the connection. After the reset, the next
// connection can use the same port immediately. IPVS ignores the reset and keeps its entry for the connection.
func connectOnce(h *netlab.Host, from, to netip.AddrPort) (server string, err error) {
	err = h.Do(func() error {
		conn, err := dialer(from).Dial("tcp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		server, err = ask(conn)
		return err
	})
	return server, err
}

// TestRemovedEndpoint tests that a new connection does not reach a removed endpoint, even if an earlier connection from
// the same source port reached that endpoint.
func TestRemovedEndpoint(t *testing.T) {
	s := running(t)
	const rounds, each, ports = 20, 500, 60
	to := []netip.AddrPort{at(shop.clusterIP, 80), at(nodeAddr, shop.nodePort)}
	ask := func(round, n int) string {
		t.Helper()
		// IPVS sends new connections from a known source port to the same endpoint, so each round of the test uses
		// different source ports.
		from := netip.AddrPortFrom(s.client.Addrs[0], uint16(20000+round*ports+n%ports))
		server, err := connectOnce(s.client, from, to[n%2])
		if err != nil {
			t.Fatalf("connection %d, from port %d: %v", n, from.Port(), err)
		}
		return server
	}
	total, wrong, known := 0, 0, 0
	for round := range rounds {
		svc := shop
		s.write(svc)
		s.waitFor(changeTimeout, s.expectEndpoints(3))
		met := map[string]bool{}
		for n := range ports {
			met[ask(round, n)] = true
		}
		if len(met) != 3 {
			t.Fatalf("round %d: the connections before went to %v alone", round, met)
		}
		gone := rand.IntN(3)
		if strings.Contains(s.onNode("ipvsadm", "-Lnc"), " "+s.pods[gone].Addrs[0].String()+":") {
			known++
		}
		svc.pods = append([]int{}, []int{(gone + 1) % 3, (gone + 2) % 3}...)
		s.write(svc)
		s.waitFor(changeTimeout, s.expectEndpoints(2))
		for n := range each {
			if total++; ask(round, n) == s.pods[gone].Name {
				wrong++
			}
		}
	}
	t.Logf("%d of %d connections with reused ports went to an endpoint that was removed; IPVS remembered some to it in %d of %d rounds", wrong, total, known, rounds)
	if wrong > 0 || known < rounds {
		t.Errorf("want none, and that IPVS remembers some")
	}
}

// expectEndpoints returns a check that fails unless the virtual server for the TCP port of the Service shop has the
// given number of endpoints.
func (s *site) expectEndpoints(want int) func() error {
	return func() error {
		have := strings.Count(s.onNode("ipvsadm", "--save", "--numeric"), "-a -t "+shop.clusterIP+":10080 ")
		if have != want {
			return fmt.Errorf("%d endpoints, want %d", have, want)
		}
		return nil
	}
}
