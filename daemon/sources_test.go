package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"edgeway/daemon/config"
)

// A reload is checked while the daemon runs with the old configuration: what that one writes stays, and nothing is made.
func TestCheckingAConfigurationTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	kubeconfig, state := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "state")
	const text = "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	writing := filepath.Join(state, ".lastknown.jsonl4711")
	if err := os.WriteFile(writing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{state, filepath.Join(dir, "new")} {
		cfg := config.Default()
		cfg.Source.Kube.Kubeconfig, cfg.Source.LastKnown.Directory = kubeconfig, folder
		if _, err := newSources(cfg, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(writing); err != nil {
		t.Errorf("what another store is writing: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a folder was made")
	}
}
