package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/daemon/config"
	"edgeway/daemon/sdunit"
	"edgeway/proxiers"
)

const examples = "../etc/edgeway/examples/monitoring"

// exportedMetrics returns a map from metric names to labels. The map contains every metric that the daemon exports with
// at least one backend.
func exportedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	pattern := regexp.MustCompile(`^Desc\{fqName: "([a-z0-9_]+)".*variableLabels: \{(.*)\}\}$`)
	for _, backend := range Backends() {
		if backend.New == nil { // skip an alias
			continue
		}
		for _, d := range describe(t, backend) {
			parts := pattern.FindStringSubmatch(d.String())
			if parts == nil {
				t.Fatalf("this test cannot read %s", d)
			}
			all[parts[1]] = strings.Split(parts[2], ",")
		}
	}
	return all
}

func describe(t *testing.T, backend proxiers.Component) (descs []*prometheus.Desc) {
	t.Helper()
	cfg := config.Default()
	cfg.Node.Name = "edge"
	cfg.Source.File.Paths = []string{t.TempDir()}
	cfg.Control.Socket = filepath.Join(t.TempDir(), "edgeway.sock")
	cfg.Checks.TCP.Sources = []config.CheckedSource{config.CheckedFile}
	logger := slog.New(slog.DiscardHandler)
	i, err := newInstance(t.Context(), settings{cfg, backend, nil}, instanceOptions{
		Logger: logger, Shared: newShared(logger, nil), Notifier: sdunit.NewNotifier(sdunit.NewManager(logger), logger),
	})
	if errors.Is(err, proxiers.ErrUnsupported) {
		t.Logf("its own metrics, of which alerts and dashboard have none, are left out: %v", err)
		return nil
	}
	if err != nil {
		t.Fatalf("%s: %v", backend.Name, err)
	}
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		i.metrics.Registry().Describe(all)
	}()
	for d := range all {
		descs = append(descs, d)
	}
	i.close()
	if err := i.control.Close(); err != nil {
		t.Fatal(err)
	}
	return descs
}

// The shipped alerts, their unit tests and the dashboard must use only metrics and labels that the daemon exports.
// Prometheus accepts any metric name, and an alert on a nonexistent metric never fires.
func TestMonitoringNamesOnlyOurMetrics(t *testing.T) {
	known := exportedMetrics(t)
	named := regexp.MustCompile(`\b((?:edgeway|kubeproxy|process|go)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`([a-z_]+) *=`)
	for _, path := range []string{
		examples + "/alerts.yaml", examples + "/dashboard.json",
		"testdata/alerts_test.yaml",
	} {
		found := named.FindAllStringSubmatch(read(t, path), -1)
		if len(found) < 10 {
			t.Errorf("%s: this test sees only %d metrics", path, len(found))
		}
		for _, f := range found {
			name := f[1]
			if _, ok := known[name]; !ok { // a histogram has several suffixes
				name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			}
			labels, ok := known[name]
			if !ok {
				t.Errorf("%s: the daemon has no metric %s", path, f[1])
				continue
			}
			for _, l := range label.FindAllStringSubmatch(f[2], -1) {
				if !slices.Contains(append([]string{"instance", "job"}, labels...), l[1]) {
					t.Errorf("%s: %s has no label %s", path, f[1], l[1])
				}
			}
		}
	}
}

// Every alert has a unit test in which it fires and a unit test in which it does not. Every recording rule has a unit
// test, and every record that the dashboard uses has a recording rule. scripts/check-packages runs the unit tests.
func TestEveryRuleHasUnitTests(t *testing.T) {
	tests, rules := read(t, "testdata/alerts_test.yaml"), read(t, examples+"/alerts.yaml")
	records := regexp.MustCompile(`- record: (\S+)`).FindAllStringSubmatch(rules, -1)
	for _, r := range records {
		if !strings.Contains(tests, r[1]) {
			t.Errorf("%s is not tested", r[1])
		}
	}
	for _, name := range regexp.MustCompile(`edgeway:[a-z_:]+`).FindAllString(read(t, examples+"/dashboard.json"), -1) {
		if !slices.ContainsFunc(records, func(r []string) bool { return r[1] == name }) {
			t.Errorf("the dashboard uses %s, which no rule records", name)
		}
	}
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 5 {
		t.Fatalf("this test sees only %d alerts", len(alerts))
	}
	for _, a := range alerts {
		quiet := fmt.Sprintf("alertname: %s, exp_alerts: []", a[1])
		fires := fmt.Sprintf("alertname: %s\n        exp_alerts:\n          - ", a[1])
		if !strings.Contains(tests, quiet) || !strings.Contains(tests, fires) {
			t.Errorf("%s is not tested both ways", a[1])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
