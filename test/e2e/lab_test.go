package e2e

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

type lab struct {
	t                      *testing.T
	net                    *netlab.Lab
	node, client, ep1, ep2 *netlab.Host
}

const (
	nodeAddr     = "192.0.2.10"
	ep1Addr      = "10.244.1.11"
	ep2Addr      = "10.244.2.12"
	clientAddr   = "203.0.113.2"
	endpointPort = 8080
)

func newLab(t *testing.T) *lab {
	t.Helper()
	n := netlab.New(t, netlab.Options{})
	l := &lab{
		t: t, net: n, node: n.Node,
		client: n.Host("client", netip.MustParseAddr(clientAddr)),
		ep1:    n.Host("ep1", netip.MustParseAddr(ep1Addr)),
		ep2:    n.Host("ep2", netip.MustParseAddr(ep2Addr)),
	}
	for _, ep := range []*netlab.Host{l.ep1, l.ep2} {
		l.must(ep.Serve(ep.Name, netip.AddrPortFrom(ep.Addrs[0], endpointPort), plan.TCP, plan.UDP))
	}
	return l
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) onNode(name string, args ...string) string {
	l.t.Helper()
	out, err := l.node.Command(l.t.Context(), name, args...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// longTimeout is the time limit for a change to take effect, in tests that do not measure speed. The limit is long,
// because the machine may be busy.
const longTimeout = time.Minute

// extendLimit extends a documented time limit if the machine is busy. The factor is edgeway's current startup time
// divided by 25 ms, the startup time on an idle machine.
func (l *lab) extendLimit(limit time.Duration) time.Duration {
	l.t.Helper()
	const starts, idle = 5, 25 * time.Millisecond
	start := time.Now()
	for range starts {
		l.onNode(sharedState.binary, "version")
	}
	return max(limit, limit*(time.Since(start)/starts)/idle)
}

// waitFor calls check repeatedly until check returns nil, and returns the elapsed time. The test fails if the limit
// expires first.
func (l *lab) waitFor(limit time.Duration, check func() error) time.Duration {
	l.t.Helper()
	start := time.Now()
	for {
		err := check()
		took := time.Since(start)
		if err == nil && took <= limit {
			return took
		}
		if took > limit {
			l.t.Fatalf("after %.1f s: %v", took.Seconds(), orElse(err, "only now it is right"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// mustStay calls check repeatedly for the given time, and fails the test if check returns an error.
func (l *lab) mustStay(span time.Duration, check func() error) {
	l.t.Helper()
	for start := time.Now(); time.Since(start) < span; time.Sleep(50 * time.Millisecond) {
		if err := check(); err != nil {
			l.t.Fatalf("after %.1f s: %v", time.Since(start).Seconds(), err)
		}
	}
}

func orElse(err error, words string) error {
	if err == nil {
		return errors.New(words)
	}
	return err
}
