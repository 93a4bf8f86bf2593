package main

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

func TestParse(t *testing.T) {
	opts, err := parse([]string{"-sizes", "30,40"})
	if err != nil || len(opts.sizes) != 2 || opts.sizes[1] != 40 {
		t.Errorf("got %v, %v", opts.sizes, err)
	}
	for _, args := range [][]string{
		{"-sizes", "40,30"},
		{"-sizes", "x"},
		{"-sizes", "5,"},
		{"-sizes", "3"},
		{"-rounds", "0"},
		{"-wrong"},
		{"-mode", "ebpf"},
		{"-patience", "0s"},
		{"-previous", "/nonexistent"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

func TestOutput(t *testing.T) {
	r := results{kit.Figures{}}
	for i, m := range measures() {
		r.add(m, 100, oursName, float64(i+1))
	}
	r.add(change, 100, oursName, 5)
	r.add(change, 100, peerName, 10)
	r.add(change, 100, floorName, 4)
	r.add(burst, 100, floorName, 4.5)
	var out strings.Builder
	r.print(&out, options{mode: modes()[0]})
	for _, m := range measures() {
		if !strings.Contains(out.String(), "| "+string(m)+", ") {
			t.Errorf("no row for %q in:\n%s", m, &out)
		}
	}
	for _, want := range []string{"| 5000 / 10000 (0.50) / 4000 (1.25) |", "| 9000 / – / 4500 (2.00) |", "| 6000 |"} {
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

// The pauses must leave most of the CPU time to the measured program, even if the measurement takes a long time or the
// machine is slow.
func TestPause(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct{ all, try, want time.Duration }{
		{0, 40 * us, 300 * us},
		{time.Second, 40 * us, 5 * ms},
		{5 * time.Second, 15 * ms, 150 * ms},
	} {
		if got := pause(c.all, c.try); got != c.want {
			t.Errorf("after %v, an attempt of %v: pause of %v, want %v", c.all, c.try, got, c.want)
		}
	}
}

func newTestProgram(t *testing.T) (*bench, *program) {
	t.Helper()
	l, err := newLab(t.Context(), 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	b := &bench{lab: l, dir: t.TempDir()}
	p, err := b.newProgram(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return b, p
}

// Each endpoint sends its address to its clients. After a reset, a host must have no nftables tables and must still
// reach the endpoints.
func TestHostsReachEndpoints(t *testing.T) {
	b, p := newTestProgram(t)
	addr := cluster.EndpointAddr(7, 3)
	direct := goal{to: netip.AddrPortFrom(addr, cluster.EndpointPort), endpoint: addr}
	if err := p.run("nft", "add", "table", "ip", "t"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.host.reach(t.Context(), []goal{direct}); err != nil {
			t.Error(err)
		}
		if err := b.reset(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := p.command("nft", "list", "tables").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("after a reset: %v: %s", err, out)
	}
	direct.endpoint = cluster.EndpointAddr(7, 4)
	if err := cluster.RunInNetns(p.host.netns, func() error { return direct.try(time.Second) }); err == nil {
		t.Error("another endpoint answered")
	}
}

// A control group must count the CPU time of a program and of its child processes. A frozen program must not use CPU
// time.
func TestProgramCPUTimeAndFreeze(t *testing.T) {
	_, p := newTestProgram(t)
	p.argv = []string{"sh", "-c", "sh -c 'while :; do :; done' & wait"}
	if _, err := p.start(); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		used, err := p.cg.CPU()
		if err == nil && used >= 20*time.Millisecond {
			break
		}
		if err != nil || time.Since(start) > 2*time.Minute {
			t.Fatalf("a busy child used %v of CPU, error %v", used, err)
		}
	}
	if err := p.cg.Freeze(true); err != nil {
		t.Fatal(err)
	}
	if err := p.cg.WaitIdle(t.Context(), 500*time.Millisecond); err != nil {
		t.Error(err)
	}
	if bytes, err := p.residentBytes(); err != nil || bytes <= 0 {
		t.Errorf("resident memory %v, error %v", bytes, err)
	}
}

// With a host's PATH, commands such as iptables-save must run the requested variant, even if the machine's default is
// the other variant.
func TestVariants(t *testing.T) {
	for variant, says := range map[string]string{"nft": "(nf_tables)", "legacy": "(legacy)"} {
		t.Run(variant, func(t *testing.T) {
			_, p := newTestProgram(t)
			if err := p.linkIPTables(variant); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"iptables", "iptables-save", "ip6tables-restore"} {
				if out, err := p.command(name, "--version").CombinedOutput(); err != nil ||
					!strings.Contains(string(out), says) {
					t.Errorf("%s: %q, %v, want %s", name, out, err, says)
				}
			}
		})
	}
}

func TestTimerSlackMatchesUnit(t *testing.T) {
	unit, err := os.ReadFile("../../units/edgeway.service")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(unit), "\nTimerSlackNSec=1ms\n") {
		t.Error("the unit has another TimerSlackNSec")
	}
	_, p := newTestProgram(t)
	out, err := p.command("sh", "-c", withSlack, "sh", "cat", "/proc/self/timerslack_ns").CombinedOutput()
	if err != nil || string(out) != "1000000\n" {
		t.Errorf("%q, %v", out, err)
	}
}
