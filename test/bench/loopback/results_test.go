package main

import (
	"strings"
	"testing"
	"time"

	"edgeway/test/bench/kit"
)

// A bound compares medians, knows whether more is better, and is neither passed nor failed when one
// of the two was not measured.
func TestBounds(t *testing.T) {
	r := results{kit.Figures{}}
	for _, rate := range []float64{94, 1, 960, 96, 95} { // median 95
		r.add(up1, oursName, rate)
	}
	r.add(up1, haproxyName, 100)
	r.add(up1, socketName, 96)
	r.add(idleMemory, oursName, 3000)
	r.add(idleMemory, haproxyName, 2500)
	r.add(p99(delay1), oursName, 90e-6)
	r.add(p99(delay1), socatName, 900e-6)
	r.add(rate, oursName, 1000)

	got := map[string]string{}
	for _, b := range r.bounds() {
		got[string(b.measure)+" "+b.peer] = kit.Short(b.ratio) + " " + b.verdict()
	}
	for name, want := range map[string]string{
		"1 stream up haproxy":                  "0.95 pass",
		"1 stream up socket-proxyd":            "0.99 FAIL",
		"memory of an idle connection haproxy": "1.20 FAIL",
		"first byte, 1 client, p99 socat":      "0.10 pass",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	if verdict := got["new connections haproxy"]; !strings.HasSuffix(verdict, "not measured") {
		t.Errorf("a peer that was not measured: %q", verdict)
	}
}

// Every measure has a row with a cell for each program.
func TestOutput(t *testing.T) {
	r := results{kit.Figures{}}
	for i, m := range measures() {
		r.add(m, oursName, float64(i+1))
	}
	r.add(down1, haproxyName, 2.5e9)
	r.add(down1.CPU(), haproxyName, 300e-12)
	var out strings.Builder
	r.print(&out, []*relay{direct(), {name: oursName}, {name: haproxyName}})
	for _, m := range measures() {
		if !strings.Contains(out.String(), "| "+string(m)+", ") {
			t.Errorf("no row for %q in:\n%s", m, &out)
		}
	}
	for _, want := range []string{"| 1 stream down, GB/s |  | 0.00 | 2.50 |", "| 300 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

func TestPercentile(t *testing.T) {
	var delays []time.Duration
	for i := 200; i > 0; i-- {
		delays = append(delays, time.Duration(i))
	}
	for percent, want := range map[float64]time.Duration{50: 100, 99: 198, 99.9: 200} {
		if got := percentile(delays, percent); got != want {
			t.Errorf("%v of 100 of 1 to 200: %d, want %d", percent, got, want)
		}
	}
	if got := percentile(delays[:1], 99); got != 200 {
		t.Errorf("one delay: %d, want itself", got)
	}
}

func TestProportional(t *testing.T) {
	got, err := proportional("Rss:   1640 kB\nPss:    282 kB\nPss_Dirty:  112 kB\n")
	if err != nil || got != 282*1024 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := proportional("Rss:   1640 kB\n"); err == nil {
		t.Error("a file without Pss is accepted")
	}
}
