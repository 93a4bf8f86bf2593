package main

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

// A verdict compares medians: with a peer that takes 100 times as long, ours pass a bound of 1/50,
// fail it at 20 times, and what was not measured is neither.
func TestBounds(t *testing.T) {
	r := results{kit.Figures{}}
	for _, ms := range []float64{9, 1, 10, 900, 10} { // median 10
		r.add(change, largeSize, oursName, ms/1000)
	}
	r.add(change, largeSize, peerName, 1.0)
	r.add(change, smallSize, oursName, 0.0082)
	r.add(newService, largeSize, oursName, 0.05)
	r.add(newService, largeSize, peerName, 1.0)
	r.add(resident, fewServices, oursName, 36e6)
	r.add(change, largeSize, floorName, 0.0080)
	r.add(newService, largeSize, floorName, 0.0330)

	got := map[string]string{}
	for _, b := range r.nftablesBounds() {
		got[b.name] = b.format(b.value) + " " + b.verdict()
	}
	for name, want := range map[string]string{
		"one change at 10000, of the peer's":      "1/100 pass",
		"one change at 10000, of our own at 100":  "1.22 FAIL",
		"new Service at 10000, of the peer's":     "1/20.0 FAIL",
		"one change at 10000, of the floor's":     "1.25 pass",
		"new Service at 10000, of the floor's":    "1.52 FAIL",
		"first sync at 10000, of the peer's":      "– not measured",
		"resident memory at 3":                    "34.3 MiB FAIL",
		"new connection at 10000, of the peer's":  "– not measured",
		"one change, CPU at 10000, of the peer's": "– not measured",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}

// Every measure has a row, and the peer's figures stand where it was measured.
func TestOutput(t *testing.T) {
	r := results{kit.Figures{}}
	for i, m := range measures() {
		r.add(m, 100, oursName, float64(i+1))
	}
	r.add(kernelMemory, 100, oursName, 13*(1<<20)-13) // median of the two: half of 13 MiB
	r.add(kernelMemory, 100, peerName, 26*(1<<20))
	r.add(change, 100, peerName, 10)
	r.add(change, 100, floorName, 4)
	r.add(newService, 100, floorName, 3.5)
	var out strings.Builder
	r.print(&out, options{mode: modes()[0], sizes: []int{100}, endpoints: 5, burst: 200})
	for _, m := range measures() {
		if !strings.Contains(out.String(), "| "+string(m)+", ") {
			t.Errorf("no row for %q in:\n%s", m, &out)
		}
	}
	// A cell ends with the last that was measured: of the memory ours and the peer's, of changes the floor's, too.
	for _, want := range []string{"| 6.50 / 26.0 (1/4.00) |", "| 5000 / 10000 (0.50) / 4000 (1.25) |", "| 7000 / – / 3500 (2.00) |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

func TestGauge(t *testing.T) {
	const name = "x_last_timestamp_seconds"
	for line, want := range map[string]float64{
		name + ` 1.7e+09`:                    1.7e9,
		name + `{ip_family="IPv4"} 12.5`:     12.5,
		name + `_other 3`:                    -1,
		`# TYPE ` + name + ` gauge`:          -1,
		name + `{ip_family="IPv6"} nonsense`: -1,
	} {
		got, ok := gauge(line, name)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: got %v, %v", line, got, ok)
		}
	}
}

// The memory of rules is that of the program that wrote them, and is there until they are removed.
func TestKernelMemory(t *testing.T) {
	ctx := t.Context()
	l, err := newLab(ctx, usualPatience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	b := &bench{lab: l, dir: t.TempDir(), size: 200000, results: results{kit.Figures{}}}
	p, err := b.newProgram(ctx, "writer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	b.ours = p
	var rules strings.Builder
	rules.WriteString("table ip t { set s { type ipv4_addr; elements = { ")
	for i := range b.size {
		fmt.Fprintf(&rules, "%s, ", cluster.ClusterIP(i))
	}
	rules.WriteString("}; }; }\n")
	if err := p.write("rules", rules.String()); err != nil {
		t.Fatal(err)
	}
	p.argv = []string{"sh", "-c", "sleep 0.2; nft -f " + p.file("rules")}
	// The median of three, as what else this machine does counts too.
	for range 3 {
		if _, err := p.start(); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		p.cmd = nil
		if err := b.kernelMemory(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	// An element of one address takes some 60 bytes.
	if got, _ := b.results.median(kernelMemory, b.size, p.name); got < float64(32*b.size) || got > float64(128*b.size) {
		t.Errorf("%d elements took %.0f bytes", b.size, got)
	}
}

// A listener in the namespace of the endpoints answers each host with the address that was asked
// for, and the control group counts the CPU of a program, of its children, and of nobody while frozen.
func TestLab(t *testing.T) {
	ctx := t.Context()
	l, err := newLab(ctx, usualPatience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	b := &bench{lab: l, dir: t.TempDir()}
	p, err := b.newProgram(ctx, "busy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	direct := goal{to: netip.AddrPortFrom(cluster.EndpointAddr(7, 3), cluster.EndpointPort), endpoint: cluster.EndpointAddr(7, 3)}
	if _, err := p.host.reach(ctx, []goal{direct}); err != nil {
		t.Error(err)
	}
	direct.endpoint = cluster.EndpointAddr(7, 4)
	if err := cluster.InNetns(p.host.netns, func() error { return direct.try(usualPatience) }); err == nil {
		t.Error("another endpoint answered")
	}
	web := netip.AddrPortFrom(cluster.EndpointAddr(7, 3), askPort)
	for _, bytes := range []int{1, answerBytes, 1 << 20} {
		if took, err := p.host.ask(web, bytes); err != nil || took <= 0 {
			t.Errorf("a request for %d bytes: %v, %v", bytes, took, err)
		}
	}
	if _, err := p.host.ask(direct.to, answerBytes); err == nil {
		t.Error("who does not know requests answered one")
	}

	p.argv = []string{"sh", "-c", "sh -c 'while :; do :; done' & wait"}
	if _, err := p.start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if used, err := p.cg.CPU(); err != nil || used < 20*time.Millisecond {
		t.Errorf("a busy child used %v of CPU, error %v", used, err)
	}
	if err := p.cg.Freeze(true); err != nil {
		t.Fatal(err)
	}
	if err := p.cg.Settle(ctx, 500*time.Millisecond); err != nil {
		t.Error(err)
	}
	if bytes, err := p.resident(); err != nil || bytes <= 0 {
		t.Errorf("resident memory %v, error %v", bytes, err)
	}
}

// Beside an earlier Edgeway every figure counts, and none may be worse by more than a twentieth.
func TestBoundsBesideAnEarlierEdgeway(t *testing.T) {
	r := results{kit.Figures{}}
	r.add(change, largeSize, oursName, 1.04)
	r.add(change, largeSize, peerName, 1)
	r.add(resident, fewServices, oursName, 1.06)
	r.add(resident, fewServices, peerName, 1)
	r.add(burst, largeSize, oursName, 1) // not measured of the other
	got := map[string]string{}
	for _, b := range (options{previous: "edgeway"}).bounds(r) {
		got[b.name] = b.verdict()
	}
	want := map[string]string{"resident memory at 3, of the peer's": "FAIL"}
	if !maps.Equal(got, want) {
		t.Errorf("without sizes: %v, want %v", got, want)
	}
	if all := (options{previous: "edgeway", sizes: []int{largeSize}}).bounds(r); len(all) != 2 || all[0].verdict() != "pass" {
		t.Errorf("at %d: %+v", largeSize, all)
	}
}
