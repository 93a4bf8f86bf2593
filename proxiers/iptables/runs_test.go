package iptables

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/test/iptablestest"
	"edgeway/test/plantest"
)

// recordRuns replaces the iptables-legacy programs with scripts that record their arguments. Each call to the returned
// function returns the arguments that the scripts have recorded since the previous call.
func recordRuns(t *testing.T) (since func() []string) {
	t.Helper()
	log, programs := filepath.Join(t.TempDir(), "log"), map[string]string{}
	for _, family := range []string{"iptables-legacy", "ip6tables-legacy"} {
		for _, suffix := range []string{"", "-restore", "-save"} {
			path, err := exec.LookPath(family + suffix)
			if err != nil {
				t.Fatal(err)
			}
			programs[family+suffix] = fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\nexec %s \"$@\"\n", family+suffix,
				log, path)
		}
	}
	iptablestest.RestrictPrograms(t, programs)
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(log, 0); err != nil {
			t.Fatal(err)
		}
		return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	}
}

// The iptables-legacy programs share a lock. Without --wait, a program that cannot acquire the lock either fails
// immediately or waits forever. iptables-save and --version do not acquire the lock.
func TestRunsWaitForLockWithTimeout(t *testing.T) {
	iptablestest.NewHost(t)
	since := recordRuns(t)
	c := testComponent(t, "iptables-legacy")
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := c.New(t.Context(), testEnv(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, change := range plantest.Changes() {
		apply(t, p, nil, change.Prev)
		apply(t, p, change.Prev, change.Next)
		gather(t, p.(prometheus.Collector))
	}
	if err := c.Cleanup(t.Context(), testEnv(t)); err != nil {
		t.Fatal(err)
	}
	bounded, runs := regexp.MustCompile(`-restore .*--wait=[1-5]\b`), 0
	for _, run := range since() {
		if strings.Contains(run, "-save ") || strings.HasSuffix(run, " --version") {
			continue
		}
		runs++
		if !bounded.MatchString(run) {
			t.Errorf("run without a bound: %s", run)
		}
	}
	if runs < len(plantest.Changes())*2 {
		t.Errorf("only %d runs were seen", runs)
	}
}

// If the backend reported a wrong number of entries for a table, the watcher would read the table after each restore.
// Scraping the metrics does not run any programs.
func TestPartialSyncReadsNoTable(t *testing.T) {
	iptablestest.NewHost(t)
	since := recordRuns(t)
	p := startProxier(t, xtables.Legacy, func(reason string) { t.Errorf("reported %q", reason) })
	for _, change := range plantest.Changes() {
		apply(t, p, nil, change.Prev)
		since()
		apply(t, p, change.Prev, change.Next)
		gather(t, p)
		full := change.Name == "loopback-on" || change.Name == "loopback-off"
		for _, run := range since() {
			if !full && !strings.Contains(run, "-restore ") {
				t.Errorf("%s: %s", change.Name, run)
			}
		}
	}
	next := plantest.Changes()[0].Next
	apply(t, p, nil, next)
	since()
	time.Sleep(1500 * time.Millisecond) // long enough for the watcher, which polls once a second
	if runs := since(); len(runs) > 0 {
		t.Errorf("run without a change: %q", runs)
	}
}

// gather returns each metric as "name{labels} type help".
func gather(t *testing.T, c prometheus.Collector) (lines []string) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	list, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range list {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %s %s", family.GetName(), strings.Join(labels, ","),
				family.GetType(), family.GetHelp()))
		}
	}
	return lines
}

func TestMetrics(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		p := startProxier(t, v, func(string) {})
		apply(t, p, nil, plantest.Plan(plantest.Node(), plantest.SampleServices()...))
		plantest.CompareGolden(t, *update, "metrics", strings.Join(gather(t, p), "\n")+"\n")
	})
}

func TestGaps(t *testing.T) {
	for _, c := range variantComponents() {
		for _, svc := range plantest.SampleServices() {
			gaps := c.Gaps(svc)
			if (len(gaps) > 0) != (svc.Affinity > 0) {
				t.Errorf("%s: %s with affinity %v has %v", c.Name, svc.Name, svc.Affinity, gaps)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	iptablestest.NewHost(t)
	c := testComponent(t, Name)
	name, err := c.Resolve(t.Context())
	if v, want := xtables.Choose(t.Context()); err != nil || want != nil || name != "iptables-"+string(v) {
		t.Errorf("%q, %v; want %s, %v", name, err, v, want)
	}
	if c.Probe != nil || c.New != nil || c.Cleanup != nil || c.Gaps != nil {
		t.Error("it has more than Resolve")
	}
	iptablestest.RestrictPrograms(t, nil)
	if name, err := c.Resolve(t.Context()); name != "" || err == nil {
		t.Errorf("without programs %q, %v", name, err)
	}
	for _, c := range variantComponents() {
		if p, err := c.New(t.Context(), testEnv(t)); p != nil || !errors.Is(err, proxiers.ErrUnsupported) {
			t.Errorf("%s: without programs %v, %v", c.Name, p, err)
		}
	}
}
