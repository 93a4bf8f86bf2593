package inside

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

const (
	clusterIP   = "10.96.0.10:80"
	clusterIP6  = "[fd00:96::10]:80"
	nodePort    = "192.0.2.10:30080"
	loopback    = "127.0.0.1:30080"
	loopback6   = "[::1]:30080"
	askPatience = 2 * time.Minute
)

// requestName connects to addr from the machine itself and returns the name of the endpoint that responds.
func requestName(addr string) (string, error) {
	conn, err := dial(addr, askPatience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return requestNameOn(conn, askPatience)
}

// ownAddr6 is one of the machine's addresses. The kernel uses ownAddr6 as a source address only for sockets that are
// bound to it.
const ownAddr6 = "2001:db8:2::11"

// dial connects to a Service. For an IPv6 ClusterIP, the source address is ownAddr6. With the default source address,
// the connection could have the same source port as the loopback relay's own connection to the endpoint. In that case,
// Linux 6.1 (but not 6.12) passes the response to the wrong socket ("netfilter: nf_nat: undo erroneous tcp edemux
// lookup after port clash").
func dial(addr string, wait time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: wait}
	if addr == clusterIP6 {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ownAddr6), 0))
	}
	return d.Dial("tcp", addr)
}

func requestNameOn(conn net.Conn, wait time.Duration) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(wait))
	if _, err := conn.Write([]byte("?\n")); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("answer: %w", err)
	}
	name, _, _ := strings.Cut(line, " ")
	return name, nil
}

// verifyFromHost fails the test unless the machine itself reaches each address on the first attempt.
func (h *host) verifyFromHost(addrs ...string) {
	h.Helper()
	for _, addr := range addrs {
		if _, err := requestName(addr); err != nil {
			h.Errorf("%s: %v", addr, err)
		}
	}
}

func (h *host) verifyFromOutside(addr string) {
	h.Helper()
	to := netip.MustParseAddrPort(addr)
	o := h.client.Connect(netlab.Flow{Protocol: plan.TCP, From: h.client.Addr(to.Addr()), To: to, Wait: askPatience})
	if o.Result != netlab.Served {
		h.Errorf("%s from outside: %s", addr, o)
	}
}

// trafficClient is a client that repeatedly connects to one address. The client leaves most of the CPU time to other
// programs, because the machine has only one slow CPU.
type trafficClient struct {
	addr  string
	wait  time.Duration // the timeout of a connection attempt and of a response
	stop  chan struct{}
	done  sync.WaitGroup
	first chan struct{}

	// served, refused, cut and failed count connections by outcome. The field cut counts accepted connections that end
	// without a response.
	served, refused, cut, failed int
	longest                      time.Duration // the longest time until a response
	outage                       time.Duration // the longest time from a failure to the next response
	faults                       []string
}

func (h *host) startTraffic(addr string, pause time.Duration) *trafficClient {
	return h.startImpatientTraffic(addr, pause, askPatience)
}

// startImpatientTraffic starts a client that abandons a connection if no response arrives within the given time. If the
// rules disappear, the kernel no longer translates the packets of an open connection, and resets the connection to the
// endpoint. The client notices the loss of the rules only when TCP retransmits.
func (h *host) startImpatientTraffic(addr string, pause, wait time.Duration) *trafficClient {
	c := &trafficClient{addr: addr, wait: wait, stop: make(chan struct{}), first: make(chan struct{})}
	c.done.Go(func() {
		var down time.Time
		var took time.Duration
		for {
			select {
			case <-c.stop:
				if !down.IsZero() { // down is the time of the first failure since the last response
					c.outage = max(c.outage, time.Since(down))
				}
				return
			case <-time.After(max(pause, min(3*took, time.Second))):
			}
			start := time.Now()
			err := c.once(start)
			took = 0 // after a failure, the next attempt follows after a pause
			if err == nil {
				took = time.Since(start)
				if !down.IsZero() {
					c.outage = max(c.outage, time.Since(down))
				}
				down = time.Time{}
			} else if down.IsZero() {
				down = start
			}
		}
	})
	return c
}

func (c *trafficClient) once(start time.Time) error {
	conn, err := dial(c.addr, c.wait)
	if err == nil {
		_, err = requestNameOn(conn, c.wait)
		conn.Close()
		if err != nil {
			c.cut++
		}
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		c.refused++
	} else {
		c.failed++
	}
	if err != nil {
		if len(c.faults) < 5 {
			c.faults = append(c.faults, time.Now().Format("15:04:05.000 ")+err.Error())
		}
		return err
	}
	if c.served++; c.served == 1 {
		close(c.first)
	}
	c.longest = max(c.longest, time.Since(start))
	return nil
}

func (h *host) flows(clients ...*trafficClient) {
	h.Helper()
	deadline := time.After(eventTimeout)
	for _, c := range clients {
		select {
		case <-c.first:
		case <-deadline:
			h.Errorf("%s: no answer", c.addr)
		}
	}
}

func (h *host) end(c *trafficClient) {
	h.Helper()
	close(c.stop)
	c.done.Wait()
	h.Logf("%s: %d served, %d refused, %d cut, %d failed; longest %d ms %s", c.addr, c.served, c.refused, c.cut,
		c.failed,
		c.longest.Milliseconds(), strings.Join(c.faults, "; "))
	if c.served == 0 {
		h.Errorf("%s: nothing was served", c.addr)
	}
}

// endWithoutFailures stops a client and fails the test if any of the client's connections failed.
func (h *host) endWithoutFailures(c *trafficClient) {
	h.Helper()
	h.end(c)
	if n := c.refused + c.cut + c.failed; n > 0 {
		h.Errorf("%s: %d connections failed, want none", c.addr, n)
	}
}
