package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/source/lastknown"
	"edgeway/proxiers/fault"
)

const examinedManifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: wep-1, namespace: default, labels: {kubernetes.io/service-name: wep}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.244.1.11]}]
`

func examinedConfig(t *testing.T, extra string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "edgeway.toml")
	text := fmt.Sprintf("version = 1\n[source.file]\npaths = [%q]\n[source.lastknown]\ndirectory = %q\n[control]\nsocket = %q\n%s",
		filepath.Join(dir, "m.yaml"), filepath.Join(dir, "state"), filepath.Join(dir, "s"), extra)
	for name, content := range map[string]string{path: text, filepath.Join(dir, "m.yaml"): examinedManifest} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// If no daemon is running, ExamineHost creates a plan from the manifests.
func TestExaminedWithoutDaemon(t *testing.T) {
	h, found := ExamineHost(t.Context(), examinedConfig(t, ""), slog.New(slog.DiscardHandler))
	if len(found) > 0 || h.PID != 0 || h.Plan == nil || len(h.Plan.Services) != 1 || len(h.Faults) != 1 ||
		h.Faults[0].ID != planner.NoEndpointID || h.Contact != nil || h.DaemonFault.Message != "" {
		t.Fatalf("%+v, found %+v", h, found)
	}
}

func TestExaminedWithUnparsableDocument(t *testing.T) {
	path := examinedConfig(t, "")
	manifest := filepath.Join(filepath.Dir(path), "m.yaml")
	if err := os.WriteFile(manifest, []byte(examinedManifest+"---\nkind: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, found := ExamineHost(t.Context(), path, slog.New(slog.DiscardHandler))
	if len(found) > 0 || len(h.Faults) != 2 || h.Faults[0].ID != "source-file" ||
		!strings.Contains(h.Faults[0].Message, manifest+":14: ") || h.Faults[1].ID != planner.NoEndpointID {
		t.Errorf("found %+v, faults %+v", found, h.Faults)
	}
}

// If the configuration is invalid, ExamineHost returns only a fault, because a daemon may still be using the previous
// configuration.
func TestExaminedWithInvalidConfiguration(t *testing.T) {
	h, found := ExamineHost(t.Context(), examinedConfig(t, "[proxy]\nmasquerade_bit = 99\n"),
		slog.New(slog.DiscardHandler))
	if len(found) != 1 || found[0].ID != "configuration" || found[0].Severity != fault.Problem ||
		!strings.Contains(found[0].Message, "masquerade_bit: 99") || h.Plan != nil {
		t.Errorf("found %+v, plan %v", found, h.Plan)
	}
}

// If ExamineHost lacks the permission to query the daemon, or does not know the daemon's socket, it must not conclude
// that no daemon is running. Otherwise, the doctor would blame another program for using the daemon's ports.
func TestExaminedWhenDaemonCannotBeQueried(t *testing.T) {
	path := examinedConfig(t, "")
	l, err := net.Listen("unix", filepath.Join(filepath.Dir(path), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	})}
	go func() { _ = server.Serve(l) }() // Serve runs until the server is closed
	t.Cleanup(func() { _ = server.Close() })
	h, found := ExamineHost(t.Context(), path, slog.New(slog.DiscardHandler))
	if len(found) > 0 || h.Plan == nil || !strings.Contains(h.DaemonFault.Message,
		"cannot query the daemon: facts: the daemon answered 403") {
		t.Errorf("a daemon that refuses: %+v, found %+v", h.DaemonFault, found)
	}
	h, _ = ExamineHost(t.Context(), examinedConfig(t, "[proxy]\nmasquerade_bit = 99\n"), slog.New(slog.DiscardHandler))
	if !strings.Contains(h.DaemonFault.Message, "which may name another socket") {
		t.Errorf("an invalid configuration: %+v", h.DaemonFault)
	}
}

func TestExaminedWithUnreadableSources(t *testing.T) {
	path := examinedConfig(t, "")
	if err := os.Remove(filepath.Join(filepath.Dir(path), "m.yaml")); err != nil {
		t.Fatal(err)
	}
	h, found := ExamineHost(t.Context(), path, slog.New(slog.DiscardHandler))
	if len(found) != 1 || found[0].ID != "sources" || found[0].Severity != fault.Problem ||
		!strings.Contains(found[0].Message, "m.yaml") || h.Plan != nil {
		t.Errorf("found %+v, plan %v", found, h.Plan)
	}
}

func TestUnreadableKubeconfigAtStartNamesFix(t *testing.T) {
	path := examinedConfig(t, "[source.kube]\nkubeconfig = \"/nonexistent/kubeconfig\"\n")
	if _, err := loadSettings(t.Context(), path); err == nil || !strings.Contains(err.Error(), "; fix: ") {
		t.Errorf("error %v", err)
	}
}

// If the API server is the only source, there are no manifests, so ExamineHost must not report the manifest source as
// faulty.
func TestExaminedWithLastKnownStateOnly(t *testing.T) {
	path := examinedConfig(t, "[source.kube]\nkubeconfig = \"/nonexistent/kubeconfig\"\n")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^paths = .*`).ReplaceAll(text, []byte("paths = []"))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	store := lastknown.New(filepath.Join(filepath.Dir(path), "state"), lastknown.Options{
		Cluster: func() lastknown.Cluster { return lastknown.Cluster{} },
		Changes: func() (uint64, bool) { return 1, true },
		Objects: func() []source.Object { return []source.Object{testService("web", 1, "http")} },
		Logger:  slog.New(slog.DiscardHandler),
	})
	store.Load()
	store.Commit(nil)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	store.Record(stopped) // writes once and returns
	h, _ := ExamineHost(t.Context(), path, slog.New(slog.DiscardHandler))
	if h.Plan == nil || slices.ContainsFunc(h.Faults, func(f fault.Fault) bool { return f.ID == "source-file" }) {
		t.Errorf("plan %v, faults %+v", h.Plan, h.Faults)
	}
}
