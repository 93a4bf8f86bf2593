package flowtable

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
)

const (
	// numPairs is the number of pairs of runs. Each pair consists of one run with the fast path and one without it.
	numPairs = 10
	// runTime is the duration of one iperf3 run. The test VM's clock counts instructions (vm.Job.Counted).
	runTime = time.Second
	// iperfPort is the iperf3 server's port for both the control connection and the data.
	iperfPort = 5201
)

// TestSpeed alternates between runs with the fast path and runs without it. Without the fast path, each packet
// traverses 100 firewall rules.
func TestSpeed(t *testing.T) {
	w, server := newSpeedWorld(t)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	fast := func() { w.apply(w.webService(1, w.toServer)...) }
	slow := func() {
		w.apply(w.webService(1, w.toServer, func(s *plan.ServicePort) { s.LongLived = false })...)
	}
	noKEP := func() { w.nft("add table inet kep; delete table inet kep"); slow() }
	kep := func() { slow(); w.nft(kepRules) }
	fast()
	w.until("iperf3 answers", func() bool { return w.runIperf() > 0 })
	bulk := func() (float64, float64) {
		before := w.busyTime()
		n := w.runIperf()
		return n, (w.busyTime() - before) / (n * runTime.Seconds() / 8e9)
	}
	w.compare("TCP: bit/s, and processor seconds for a GB", 1.3, slow, fast, bulk)
	w.compare("TCP, ours beside the KEP's rules: bit/s, and processor seconds for a GB", 0.97, kep,
		func() { noKEP(); fast() }, bulk)
	noKEP()
	w.compare("UDP of 64 bytes: datagrams/s, and packets that the rules saw", 1.3, slow, fast,
		func() (float64, float64) {
			before := w.seen()
			n := w.runIperf("-u", "-l", "64", "-b", "0")
			return n / 64 / 8, float64(w.seen() - before)
		})
}

func (w *world) toServer(s *plan.ServicePort) {
	s.Pools[0] = []plan.Endpoint{{Addr: netip.AddrPortFrom(w.endpoints[0].Addr(s.Frontends[0].Addr), iperfPort)}}
	s.Serving = s.Pools[0]
}

// newSpeedWorld returns a world with a firewall, and the command that starts an iperf3 server.
func newSpeedWorld(t *testing.T) (*world, *exec.Cmd) {
	t.Helper()
	if os.Getenv("FASTPATH_SPEED") == "" {
		t.Skip("a measurement, for test/vm/jobs (TestNightlyFastPathSpeed)")
	}
	w := newWorld(t, nftables.Component())
	w.addFirewall(100)
	return w, w.endpoints[0].Command(t.Context(), "iperf3", "-s")
}

// addFirewall adds rules that match no packet, so the kernel evaluates every rule for each forwarded packet.
func (w *world) addFirewall(rules int) {
	w.Helper()
	var b strings.Builder
	b.WriteString("add table ip firewall\nadd chain ip firewall forward { type filter hook forward priority 0; }\n")
	for i := range rules {
		fmt.Fprintf(&b, "add rule ip firewall forward ip saddr 203.0.113.%d tcp dport %d counter drop\n", i%250, 1000+i)
	}
	w.nft(b.String())
	w.Cleanup(func() { w.nft("delete table ip firewall") })
}

// compare measures two configurations in turn, and fails the test if the median ratio of the second configuration's
// rate to the first one's is below the minimum (least).
func (w *world) compare(what string, least float64, without, with func(), measure func() (rate, cost float64)) {
	w.Helper()
	var rates, costs [2][]float64
	var ratios []float64
	better := 0
	for i := range numPairs {
		for turn := range 2 {
			side := (i + turn) % 2
			[]func(){without, with}[side]()
			// The expiry of old connections would distort the measurement.
			if err := w.lab.Node.FlushConntrack(); err != nil {
				w.Fatal(err)
			}
			time.Sleep(inspectionDelay)
			rate, cost := measure()
			rates[side], costs[side] = append(rates[side], rate), append(costs[side], cost)
		}
		ratios = append(ratios, rates[1][i]/rates[0][i])
		if ratios[i] > 1 {
			better++
		}
	}
	ratio := median(ratios)
	w.Logf("%s: without %.4g and %.4g, with %.4g and %.4g: ratio %.3f (%.3f to %.3f), better in %d of %d pairs, p = %.2g", what,
		median(rates[0]), median(costs[0]), median(rates[1]), median(costs[1]), ratio, slices.Min(ratios),
		slices.Max(ratios), better, numPairs, signTest(better, numPairs))
	if ratio < least {
		w.Errorf("%s: ratio %.3f, want %.2f at least", what, ratio, least)
	}
}

// signTest returns the p-value of a two-sided sign test. wins is the number of pairs, out of numPairs, in which one
// alternative was better.
func signTest(wins, numPairs int) (p float64) {
	most := max(wins, numPairs-wins)
	ways := 1.0 // the binomial coefficient "numPairs choose k"
	for k := range numPairs + 1 {
		if k >= most {
			p += 2 * ways
		}
		ways = ways * float64(numPairs-k) / float64(k+1)
	}
	return min(p/math.Pow(2, float64(numPairs)), 1)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// runIperf returns the receive rate in bits per second, or 0 if the iperf3 server did not respond.
func (w *world) runIperf(more ...string) float64 {
	w.Helper()
	args := append([]string{
		"-c", service4.String(), "-p", strconv.Itoa(servicePort), "-J", "-t",
		fmt.Sprint(runTime.Seconds()),
	}, more...)
	out, err := w.client.Command(w.Context(), "iperf3", args...).Output()
	if err != nil {
		return 0
	}
	var result struct {
		End struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
				Lost float64 `json:"lost_percent"`
			} `json:"sum_received"`
			Sum struct {
				Bits float64 `json:"bits_per_second"`
				Lost float64 `json:"lost_percent"`
			} `json:"sum"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		w.Fatal(err)
	}
	if bits := result.End.Received.Bits; bits > 0 {
		return bits
	}
	return result.End.Sum.Bits * (100 - result.End.Sum.Lost) / 100
}

// busyTime returns the total busy time of all CPUs, in seconds.
func (w *world) busyTime() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		w.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	total := 0.0
	for i, field := range strings.Fields(line)[1:] {
		if n, _ := strconv.ParseFloat(field, 64); i != 3 && i != 4 && i < 8 { // fields 3 and 4 are idle and iowait
			total += n
		}
	}
	return total / 100
}

// kepRules holds the rules that KEP-4963 proposes, with the test's devices and Service.
const kepRules = `add table inet kep
delete table inet kep
table inet kep {
	set service-ip4-ports { type inet_proto . ipv4_addr . inet_service; elements = { tcp . 10.96.0.10 . 80 }; }
	flowtable fastpath { hook ingress priority filter; devices = { client, eth0, one, two }; }
	chain fastpath-mark {
		type filter hook prerouting priority dstnat - 10; policy accept;
		meta l4proto . ip daddr . th dport @service-ip4-ports meta mark set meta mark | 0x00008000
	}
	chain fastpath {
		type filter hook forward priority filter; policy accept;
		meta mark 0x00008000 flow add @fastpath
		meta mark set meta mark & 0x00007fff
	}
}
`
