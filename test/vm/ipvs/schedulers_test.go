package ipvs

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// distribution counts the connections to a Service by pod number.
type distribution struct {
	// total counts all connections, and open counts the connections that are open at the end of a run.
	total, open [3]int
	// bySource maps each source address to the number of connections to each pod.
	bySource map[netip.Addr][3]int
}

// schedulerCase is a test case: a scheduler, the pods' weights, and a function that verifies the distribution.
type schedulerCase struct {
	name    string
	weights [3]int
	verify  func(distribution) string // returns "" if the distribution is as documented
}

// requireProportional requires the connection counts to be proportional to the weights. The parameter few is the
// largest acceptable deviation of a count.
func requireProportional(
	what string, parts func(distribution) [3]int, weights [3]int, few int,
) func(distribution) string {
	return func(s distribution) string {
		have := parts(s)
		total, sum := have[0]+have[1]+have[2], weights[0]+weights[1]+weights[2]
		for i, n := range have {
			if want := total * weights[i] / sum; n < want-few || n > want+few {
				return fmt.Sprintf("%s are %v, want them as %v", what, have, weights)
			}
		}
		return ""
	}
}

func got(s distribution) [3]int  { return s.total }
func open(s distribution) [3]int { return s.open }

// requireHashing requires that all connections from one source address reach the same endpoint, and that at least two
// endpoints receive connections.
func requireHashing(s distribution) string {
	if slices.Max(s.total[:]) == s.total[0]+s.total[1]+s.total[2] {
		return "all go to one endpoint"
	}
	for a, n := range s.bySource {
		if slices.Max(n[:]) != n[0]+n[1]+n[2] {
			return fmt.Sprintf("%s goes to several: %v", a, n)
		}
	}
	return ""
}

func exactly(what string, parts func(distribution) [3]int, want [3]int) func(distribution) string {
	return func(s distribution) string {
		if have := parts(s); have != want {
			return fmt.Sprintf("%s are %v, want %v", what, have, want)
		}
		return ""
	}
}

// requireOne requires one endpoint to receive at least the given percentage of the connections.
func requireOne(percent int) func(distribution) string {
	return func(s distribution) string {
		if slices.Max(s.total[:])*100 < percent*(s.total[0]+s.total[1]+s.total[2]) {
			return fmt.Sprintf("none of %v has %d %%", s.total, percent)
		}
		return ""
	}
}

// requireEach requires every endpoint to receive at least the given percentage of the connections.
func requireEach(percent int) func(distribution) string {
	return func(s distribution) string {
		if slices.Min(s.total[:])*100 < percent*(s.total[0]+s.total[1]+s.total[2]) {
			return fmt.Sprintf("not each of %v has %d %%", s.total, percent)
		}
		return ""
	}
}

// connectionCount is the number of connections that the test opens for each scheduler. The test closes every third
// connection immediately. After opening half of the connections, the test also closes all open connections to pod-0.
const connectionCount = 600

func schedulers() []schedulerCase {
	equal, falling, bounds := [3]int{1, 1, 1}, [3]int{3, 2, 1}, [3]int{120, 100, 80}
	return []schedulerCase{
		{"rr", falling, requireProportional("connections", got, equal, 1)},
		{"wrr", falling, requireProportional("connections", got, falling, 3)},
		{"lc", falling, requireProportional("open connections", open, equal, 3)},
		{"wlc", falling, requireProportional("open connections", open, falling, 3)},
		{"sed", falling, requireProportional("open connections", open, falling, 3)},
		{"nq", falling, requireProportional("open connections", open, falling, 3)},
		{"lblc", falling, requireOne(50)},
		{"lblcr", falling, requireProportional("open connections", open, falling, 5)},
		{"dh", falling, requireOne(100)},
		{"sh", equal, requireHashing},
		{"mh", equal, requireHashing},
		{"fo", falling, exactly("connections", got, [3]int{connectionCount, 0, 0})},
		// ovf chooses the endpoint with the highest weight until its number of open connections exceeds the weight, and
		// then chooses the next endpoint.
		{"ovf", bounds, exactly("open connections", open, [3]int{121, 101, 57})},
		{"twos", equal, requireEach(10)},
	}
}

// TestSchedulers tests that each kernel scheduler distributes connections as documented, according to the weights in an
// annotation.
func TestSchedulers(t *testing.T) {
	s := running(t)
	var table strings.Builder
	for i, c := range schedulers() {
		if c.name == "twos" && !s.has("twos") {
			t.Log("this kernel has no scheduler twos")
			continue
		}
		svc := service{
			name: "by-" + c.name, clusterIP: fmt.Sprintf("10.96.1.%d", 10+i), pods: []int{0, 1, 2},
			annotations: map[string]string{
				"edgeway.io/ipvs-scheduler": c.name,
				"edgeway.io/ipvs-weights":   fmt.Sprintf("node-0=%d, node-1=%d, 10.244.1.13=%d", c.weights[0], c.weights[1], c.weights[2]),
			},
		}
		s.write(svc)
		s.waitFor(changeTimeout, s.expectServer(svc, fmt.Sprintf("-A -t %s:10080 -s %s", svc.clusterIP, c.name)))
		r, err := s.openConnections(at(svc.clusterIP, 80), func(r distribution) {
			if c.name == "wlc" {
				s.verifyExplanation(svc, r)
			}
		})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", c.name, c.weights[0], c.weights[1],
			c.weights[2],
			r.total[0], r.total[1], r.total[2], r.open[0], r.open[1], r.open[2])
		if why := c.verify(r); why != "" {
			t.Errorf("%s: %s", c.name, why)
		}
	}
	t.Logf("scheduler, weights, connections, open at the end:\n%s", table.String())
}

func (s *site) has(scheduler string) bool {
	return s.node.Command(s.Context(), "modprobe", "ip_vs_"+scheduler).Run() == nil
}

// expectServer returns a check that fails unless the kernel has the expected virtual server with all of the Service's
// pods.
func (s *site) expectServer(svc service, command string) func() error {
	return func() error {
		have := s.servers()
		if !slices.Contains(have, command) || strings.Count(strings.Join(have, "\n"),
			"-a -t "+svc.clusterIP+":10080 ") != len(svc.pods) {
			return fmt.Errorf("virtual servers are %q, want %q", have, command)
		}
		return nil
	}
}

// openConnections opens connections one after another, from each of the client's addresses in turn, and calls the
// function end while the connections are open.
func (s *site) openConnections(to netip.AddrPort, end func(distribution)) (r distribution, err error) {
	r.bySource = map[netip.Addr][3]int{}
	var held [3][]net.Conn
	defer func() {
		for _, list := range held {
			for _, c := range list {
				_ = c.Close()
			}
		}
	}()
	for n := range connectionCount {
		from := s.client.Addrs[n%len(s.client.Addrs)]
		conn, pod, err := s.connect(from, to)
		if err != nil {
			return r, fmt.Errorf("connection %d: %w", n, err)
		}
		r.total[pod]++
		of := r.bySource[from]
		of[pod]++
		r.bySource[from] = of
		if n%3 == 0 {
			if err := finish(conn); err != nil {
				return r, err
			}
		} else {
			held[pod] = append(held[pod], conn)
		}
		if n == connectionCount/2-1 {
			for _, c := range held[0] {
				if err := finish(c); err != nil {
					return r, err
				}
			}
			held[0] = nil
		}
	}
	for pod, list := range held {
		r.open[pod] = len(list)
	}
	end(r)
	return r, nil
}

// connect opens a connection from the client and returns the number of the pod that responds.
func (s *site) connect(from netip.Addr, to netip.AddrPort) (conn net.Conn, pod int, err error) {
	err = s.client.Do(func() error {
		conn, err = dialer(netip.AddrPortFrom(from, 0)).Dial("tcp", to.String())
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	name, err := ask(conn)
	if err != nil {
		return nil, 0, err
	}
	_, err = fmt.Sscanf(name, "pod-%d", &pod)
	return conn, pod, err
}

func finish(conn net.Conn) error {
	defer conn.Close()
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(hangTimeout)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, conn)
	return err
}

// verifyExplanation fails the test unless the explain and plan commands report the scheduler and the weights, and the
// explain command also reports the connections.
func (s *site) verifyExplanation(svc service, r distribution) {
	s.Helper()
	out, code := s.edgeway("explain", s.client.Addrs[0].String(), svc.clusterIP+":80")
	for _, words := range []string{
		"wlc, of the virtual server " + svc.clusterIP + ":10080", "weight 3,",
		fmt.Sprintf("%d active and", r.open[1]),
	} {
		if code != 0 || !strings.Contains(out, words) {
			s.Errorf("explain does not say %q:\n%s", words, out)
		}
	}
	out, code = s.edgeway("plan", "default/"+svc.name)
	for _, words := range []string{`"scheduler": "wlc"`, `"weight": 3`, `"weight": 1`} {
		if code != 0 || !strings.Contains(out, words) {
			s.Errorf("plan does not say %q:\n%s", words, out)
		}
	}
}
