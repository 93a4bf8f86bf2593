package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"edgeway/proxiers/plan"
)

// outcome is the result of a connection attempt.
type outcome uint8

const (
	answers outcome = iota
	silent          // the server did not respond
	refused
	unreachable // the kernel has no route, or a router sent an error
	forbidden   // an output rule of this host rejected the connection
	failed      // another error occurred
)

// String returns the predicate of a sentence about a server, as in "10.244.1.11:8080 does not answer".
func (o outcome) String() string {
	return [...]string{
		"answers", "does not answer", "refuses connections", "cannot be reached: there is no route, or " +
			"a router rejects the packets",
		"cannot be reached: a rule on this host rejects the packets", "cannot be reached",
	}[o]
}

// responseTimeout is the time limit for a server's response. TCP retransmits the first packet after one second.
const responseTimeout = 2500 * time.Millisecond

// dial opens one connection. from is the source port, or 0 if the kernel chooses the port.
func dial(ctx context.Context, p plan.Protocol, to netip.AddrPort, from uint16) outcome {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	if p == plan.UDP {
		return sendUDP(ctx, to, from)
	}
	var d net.Dialer
	if from != 0 {
		d.LocalAddr = &net.TCPAddr{Port: int(from)}
	}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err == nil {
		_ = conn.Close()
	}
	return classify(err)
}

// ConnectAny connects to all addresses over TCP in parallel, until one server responds. ConnectAny returns "" if a
// server responds, or else a description of one failure, as in "10.244.1.11:8080 does not answer".
func ConnectAny(ctx context.Context, all []netip.AddrPort) (failure string) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		to  netip.AddrPort
		got outcome
	}
	results := make(chan result, len(all))
	for _, to := range all {
		group.Go(func() { results <- result{to, dial(ctx, plan.TCP, to, 0)} })
	}
	for range all {
		r := <-results
		if r.got == answers {
			return ""
		}
		failure = fmt.Sprintf("%s %s", r.to, r.got)
	}
	return failure
}

// dnsPort is the only UDP port whose servers must respond.
const dnsPort = 53

// dnsQuery is a DNS query for the root name servers. Every DNS server responds to this query, even if only with a
// refusal.
var dnsQuery = []byte{0xed, 0x6e, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1}

// sendUDP sends a UDP datagram and classifies the response.
func sendUDP(ctx context.Context, to netip.AddrPort, from uint16) outcome {
	var d net.Dialer
	if from != 0 {
		d.LocalAddr = &net.UDPAddr{Port: int(from)}
	}
	conn, err := d.DialContext(ctx, "udp", to.String())
	if err != nil {
		return classify(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return classify(err)
	}
	question := dnsQuery
	if to.Port() != dnsPort {
		question = []byte{0}
	}
	if _, err := conn.Write(question); err != nil {
		return classify(err)
	}
	_, err = conn.Read(make([]byte, 1500))
	if errors.Is(err, io.EOF) { // the response is an empty datagram
		err = nil
	}
	return classify(err)
}

func classify(err error) outcome {
	var late net.Error
	switch {
	case err == nil:
		return answers
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return unreachable
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return forbidden
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &late) && late.Timeout():
		return silent
	}
	return failed
}

func freePort(p plan.Protocol) (uint16, error) {
	if p == plan.UDP {
		conn, err := net.ListenUDP("udp", nil)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port(), nil
	}
	l, err := net.ListenTCP("tcp", nil)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort().Port(), nil
}
