package flowtable

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
)

const (
	// pairs of runs, with and without, are compared: all of ten in one direction are p = 0.002 by the sign test.
	pairs = 10
	// runTime is how long each run is.
	runTime = 2 * time.Second
	// iperfPort is where iperf3 listens, for its control connection and the data.
	iperfPort = 5201
)

// TestSpeed measures in turns with and without the fast path, beside 100 rules of a firewall. The ratios are of an emulated
// processor: how many packets the rules saw, and the processor's time for a gigabyte, say more than the throughput does.
func TestSpeed(t *testing.T) {
	if os.Getenv("FASTPATH_SPEED") == "" {
		t.Skip("a measurement, for test/vm/jobs (TestNightlyFastPathSpeed)")
	}
	w := newWorld(t, Options{}, nftables.Component())
	w.firewall(100)
	toIperf := func(s *plan.ServicePort) {
		s.Pools[0] = []plan.Endpoint{{Addr: netip.AddrPortFrom(w.endpoints[0].Addr(s.Frontends[0].Addr), iperfPort)}}
		s.Serving = s.Pools[0]
	}
	server := w.endpoints[0].Command(t.Context(), "iperf3", "-s")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	fast := func() { w.apply(w.web(1, toIperf)...) }
	slow := func() {
		w.apply(w.web(1, toIperf, func(s *plan.ServicePort) { s.LongLived = false })...)
	}
	noKEP := func() { w.nft("add table inet kep; delete table inet kep"); slow() }
	kep := func() { slow(); w.nft(kepRules) }
	fast()
	w.until("iperf3 answers", func() bool { return w.iperf("-t", "1") > 0 })
	bulk := func() (float64, float64) {
		before := w.busy()
		n := w.iperf()
		return n, (w.busy() - before) / (n * runTime.Seconds() / 8e9)
	}
	w.compare("TCP, bit/s and processor seconds for a GB", slow, fast, bulk)
	w.compare("TCP, the KEP's rules against ours", kep, func() { noKEP(); fast() }, bulk)
	noKEP()
	small := func() (float64, float64) {
		before := w.seen()
		n := w.iperf("-u", "-l", "64", "-b", "0")
		return n / 64 / 8, float64(w.seen() - before)
	}
	w.compare("UDP of 64 bytes, datagrams/s and packets that the rules saw", slow, fast, small)
}

// TestShortConnections compares the rate of short connections with and without the fast path, with a threshold.
func TestShortConnections(t *testing.T) {
	if os.Getenv("FASTPATH_SPEED") == "" {
		t.Skip("a measurement, for test/vm/jobs (TestNightlyFastPathSpeed)")
	}
	w := newWorld(t, Options{AfterPackets: 20}, nftables.Component())
	w.firewall(100)
	w.compare("short connections/s and packets that the rules saw for each",
		func() { w.apply(w.web(1, func(s *plan.ServicePort) { s.LongLived = false })...) },
		func() { w.apply(w.web(1)...) },
		func() (float64, float64) {
			before, n := w.seen(), w.short()
			return n / runTime.Seconds(), float64(w.seen()-before) / n
		})
}

// firewall has rules that nothing matches before the last packet of the forward hook.
func (w *world) firewall(rules int) {
	w.Helper()
	var b strings.Builder
	b.WriteString("add table ip firewall\nadd chain ip firewall forward { type filter hook forward priority 0; }\n")
	for i := range rules {
		fmt.Fprintf(&b, "add rule ip firewall forward ip saddr 203.0.113.%d tcp dport %d counter drop\n", i%250, 1000+i)
	}
	w.nft(b.String())
	w.Cleanup(func() { w.nft("delete table ip firewall") })
}

// compare runs pairs in turns, and tells the medians and in how many pairs the second was better.
func (w *world) compare(what string, without, with func(), measure func() (rate, cost float64)) {
	w.Helper()
	var rates, costs [2][]float64
	better := 0
	for i := range pairs {
		for turn := range 2 {
			side := (i + turn) % 2
			[]func(){without, with}[side]()
			time.Sleep(settle)
			rate, cost := measure()
			rates[side], costs[side] = append(rates[side], rate), append(costs[side], cost)
		}
		if rates[1][i] > rates[0][i] {
			better++
		}
	}
	w.Logf("%s: without %.3g and %.3g, with %.3g and %.3g: ratio %.2f, better in %d of %d pairs", what,
		median(rates[0]), median(costs[0]), median(rates[1]), median(costs[1]), median(rates[1])/median(rates[0]), better, pairs)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// iperf gives the bits that arrived in a second; 0: nobody answered.
func (w *world) iperf(more ...string) float64 {
	w.Helper()
	args := append([]string{"-c", service4.String(), "-p", strconv.Itoa(servicePort), "-J", "-t", fmt.Sprint(runTime.Seconds())}, more...)
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

// short opens connections one after the other, each with a question and an answer.
func (w *world) short() (n float64) {
	w.Helper()
	err := w.client.Do(func() error {
		for end := time.Now().Add(runTime); time.Now().Before(end); n++ {
			c, err := net.Dial("tcp", netip.AddrPortFrom(service4, servicePort).String())
			if err != nil {
				return err
			}
			if _, err = c.Write([]byte("?\n")); err == nil {
				_, err = bufio.NewReader(c).ReadString('\n')
			}
			_ = c.Close()
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// busy gives the seconds that the machine's processors have worked.
func (w *world) busy() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		w.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	total := 0.0
	for i, field := range strings.Fields(line)[1:] {
		if n, _ := strconv.ParseFloat(field, 64); i != 3 && i != 4 && i < 8 { // idle, iowait
			total += n
		}
	}
	return total / 100
}

// kepRules are those that KEP-4963 proposes, with the names of the test's devices and Service.
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
