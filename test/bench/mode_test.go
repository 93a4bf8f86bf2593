package main

import (
	"strings"
	"testing"
	"time"

	"edgeway/test/bench/kit"
)

// The first sync has another limit in each of the iptables modes, the rest has the same.
func TestIPTablesBounds(t *testing.T) {
	r := results{kit.Figures{}}
	for m, ours := range map[measure]float64{change: 0.33, change.CPU(): 0.34, firstSync: 0.75} {
		r.add(m, mediumSize, oursName, ours)
		r.add(m, mediumSize, peerName, 1)
	}
	for name, firstSync := range map[string]string{"iptables-nft": "FAIL", "iptables-legacy": "pass"} {
		m, err := findMode(name)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, b := range m.bounds(r) {
			got[b.name] = b.verdict()
		}
		for about, want := range map[string]string{
			"one change at 5000, of the peer's":       "pass",
			"one change, CPU at 5000, of the peer's":  "FAIL",
			"one change, CPU at 10000, of the peer's": "not measured",
			"first sync at 5000, of the peer's":       firstSync,
			"resident memory at 10000, of the peer's": "not measured",
		} {
			if got[about] != want {
				t.Errorf("%s: %s: got %q, want %q", name, about, got[about], want)
			}
		}
	}
	if _, err := findMode("iptables-neither"); err == nil {
		t.Error("an unknown mode is accepted")
	}
}

// A run that is strict fails for what does not hold, and for what was not measured; an increase is judged by itself, also one that
// is a decrease.
func TestIPVSBounds(t *testing.T) {
	m, err := findMode("ipvs")
	if err != nil {
		t.Fatal(err)
	}
	r := results{kit.Figures{}}
	add := func(m measure, services int, ours, peers float64) {
		r.add(m, services, oursName, ours)
		r.add(m, services, peerName, peers)
	}
	add(firstSync, thousand, 1, 2)
	add(firstSync, mediumSize, 1, 1.9)
	add(change.CPU(), smallSize, 0.0100, 1)
	add(change.CPU(), mediumSize, 0.0104, 1)
	add(newService, mediumSize, 0.09, 1)
	add(resident, mediumSize, 40<<20, 90<<20)
	add(request, mediumSize, 0.001, 0.00099)
	wrong := map[string]string{
		"first sync at 5000, of the peer's":                   "0.53: FAIL",
		"new connection and a request at 5000, of the peer's": "1.01: FAIL",
		"one stream at 5000, of the peer's":                   "–: not measured",
	}
	text := judge(m.bounds(r)).Error()
	for name, verdict := range wrong {
		if !strings.Contains(text, name+": "+verdict) {
			t.Errorf("no %q of %q in:\n%s", verdict, name, text)
		}
	}
	if n := strings.Count(text, "\n") + 1; n != len(wrong) {
		t.Errorf("%d bounds are wrong:\n%s", n, text)
	}
	for increase, want := range map[float64]string{0.0006: "FAIL", -0.002: holds} {
		r.Figures[kit.Key{Measure: change.CPU(), Services: mediumSize, Program: oursName}] = []float64{0.01 + increase}
		if got := r.increase(change.CPU(), mediumSize, 0.0005).verdict(); got != want {
			t.Errorf("an increase of %v: %s, want %s", increase, got, want)
		}
	}
}

// Who waits tries less often the longer it takes, and on a slow machine no more than a small part of the time.
func TestPause(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct{ all, try, want time.Duration }{
		{0, 40 * us, 300 * us},
		{5 * ms, 40 * us, 300 * us},
		{time.Second, 40 * us, 5 * ms},
		{100 * ms, 15 * ms, 5 * ms},
		{5 * time.Second, 15 * ms, 150 * ms},
	} {
		if got := pause(c.all, c.try); got != c.want {
			t.Errorf("after %v, a try of %v: pause of %v, want %v", c.all, c.try, got, c.want)
		}
	}
}

// hosts makes a bench of a mode with two programs that do nothing.
func hosts(t *testing.T, m mode) *bench {
	t.Helper()
	l, err := newLab(t.Context(), usualPatience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	b := &bench{opts: options{mode: m, peerLimit: 1}, lab: l, dir: t.TempDir(), results: results{kit.Figures{}}}
	for name, p := range map[string]**program{"one": &b.ours, "other": &b.peer} {
		if *p, err = b.newProgram(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*p).close)
	}
	return b
}

// The plain names are those of the variant, whatever this machine uses; rules that were written are
// gone after clearing, those of the other host stay.
func TestVariants(t *testing.T) {
	for variant, says := range map[string]string{"nft": "(nf_tables)", "legacy": "(legacy)"} {
		t.Run(variant, func(t *testing.T) {
			m, err := findMode("iptables-" + variant)
			if err != nil {
				t.Fatal(err)
			}
			b := hosts(t, m)
			dir, err := b.ours.linkIPTables(variant)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range iptablesNames {
				if out, err := b.ours.command(dir+"/"+name, "--version").CombinedOutput(); err != nil || !strings.Contains(string(out), says) {
					t.Errorf("%s: %q, %v, want %s", name, out, err, says)
				}
			}
			rules := "*nat\n:A-CHAIN - [0:0]\n-A OUTPUT -j A-CHAIN\nCOMMIT\n*mangle\n:A-CHAIN - [0:0]\nCOMMIT\n"
			saved := func(p *program) string {
				var all []byte
				for _, name := range []string{"/iptables-save", "/ip6tables-save"} {
					out, err := p.command(dir + name).CombinedOutput()
					if err != nil {
						t.Fatalf("%s: %v: %s", name, err, out)
					}
					all = append(all, out...)
				}
				return string(all)
			}
			for _, p := range []*program{b.ours, b.peer} {
				if err := p.write("rules", rules); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"/iptables-restore", "/ip6tables-restore"} {
					if err := p.run(dir+name, p.file("rules")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := b.clearRules(b.ours); err != nil {
				t.Fatal(err)
			}
			if left := saved(b.ours); strings.Contains(left, "A-CHAIN") {
				t.Errorf("after clearing:\n%s", left)
			}
			if n := strings.Count(saved(b.peer), ":A-CHAIN"); n != 4 {
				t.Errorf("the other host has %d of 4 chains", n)
			}
		})
	}
}

// A program that is too slow at its first sync has no further one.
func TestSlow(t *testing.T) {
	b := hosts(t, modes()[0])
	b.ours.slow = true
	if err := b.firstSync(t.Context(), b.ours); err != nil || len(b.results.Figures) > 0 || b.ours.cmd != nil {
		t.Errorf("error %v, %d figures", err, len(b.results.Figures))
	}
}
