package nftables

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// dnsPlan returns a plan with one ServicePort. The ServicePort's endpoints have consecutive addresses from the list of
// the host's six endpoint addresses. The parameter from is the index of the first address.
func dnsPlan(node *plan.Node, endpoints, from int) *plan.Plan {
	var list []plan.Endpoint
	for i := range endpoints {
		list = append(list, endpoint(fmt.Sprintf("10.244.1.%d:53", (from+i)%6+1)))
	}
	svc := service("dns", []plan.Frontend{clusterIP("10.96.0.4", 53)}, list...)
	svc.Name.Protocol = plan.UDP
	return newPlan(node, svc)
}

// While endpoints change, the first packet of each flow must reach an endpoint. A packet traverses the rules within
// microseconds, so the test needs many packets to find a fault.
func TestNoFirstPacketIsLost(t *testing.T) {
	const changes = 1000
	packets, _ := strconv.Atoi(os.Getenv("FIRST_PACKETS"))
	newHost(t)
	addrs := []string{"192.0.2.1/32"}
	for i := range 6 {
		addrs = append(addrs, fmt.Sprintf("10.244.1.%d/32", i+1))
	}
	loopback(t, addrs...)
	p, _ := testProxier(t)
	node := testNode()
	var plans []*plan.Plan
	for _, c := range [][2]int{{5, 0}, {4, 0}, {3, 1}, {5, 2}, {2, 3}, {1, 0}, {6, 1}} {
		plans = append(plans, dnsPlan(node, c[0], c[1]))
	}
	var prev *plan.Plan
	for _, next := range plans { // after this loop, the tables contain all class chains
		apply(t, p, prev, next)
		prev = next
	}
	r := newReceiver(t)
	s := newSender(t, &unix.SockaddrInet4{Addr: [4]byte{10, 96, 0, 4}, Port: 53})
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() { s.run(stop) })
	for i := 0; i < changes || r.received.Load() < int64(packets); i++ {
		next := plans[i%len(plans)]
		apply(t, p, prev, next)
		prev = next
		time.Sleep(100 * time.Microsecond)
	}
	close(stop)
	sending.Wait()
	if s.failure != nil {
		t.Fatal(s.failure)
	}
	received := r.stop(t)
	t.Logf("%d first packets", s.sent)
	if lost := s.sent - s.refused - received; lost != 0 || s.refused != 0 || s.sent < 100 {
		t.Errorf("of %d first packets %d were lost and %d rejected, want none of many", s.sent, lost, s.refused)
	}
}

// receiver counts the packets received on UDP port 53.
type receiver struct {
	fd       int
	received atomic.Int64
	quit     atomic.Bool
	ended    sync.WaitGroup
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000}),
			unix.Bind(fd, &unix.SockaddrInet4{Port: 53}))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	r := &receiver{fd: fd}
	r.ended.Go(r.run)
	return r
}

func (r *receiver) run() {
	buf := make([]byte, 1)
	for {
		_, err := unix.Read(r.fd, buf)
		switch {
		case err == nil:
			r.received.Add(1)
		case errors.Is(err, unix.EAGAIN) && r.quit.Load():
			return
		}
	}
}

// stop returns the number of received packets, including packets that the kernel dropped because the socket's buffer
// was full.
func (r *receiver) stop(t *testing.T) int {
	t.Helper()
	r.quit.Store(true)
	r.ended.Wait()
	text, err := os.ReadFile("/proc/thread-self/net/udp")
	if err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 13 && strings.HasSuffix(fields[1], ":0035") {
			dropped, _ = strconv.Atoi(fields[12])
		}
	}
	return int(r.received.Load()) + dropped
}
