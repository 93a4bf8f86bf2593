package daemon

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"edgeway/daemon/config"
)

// The API server is asked once the last-known state is in the kernel, or some time later if that fails; and at once if there is none.
func TestLastKnownStateGoesFirst(t *testing.T) {
	const soon = 300 * time.Millisecond
	for _, c := range []struct {
		name            string
		state, inKernel bool
		limit, early    time.Duration
	}{
		{"state in the kernel", true, true, time.Hour, soon},
		{"state not in the kernel", true, false, soon, soon},
		{"no state", false, false, time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan time.Time, 1000)
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked <- time.Now()
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			defer api.Close()
			cfg := config.Default()
			cfg.Source.LastKnown.Directory, cfg.Source.Kube.Kubeconfig = t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
			writeKubeconfig(t, cfg.Source.Kube.Kubeconfig, api.URL)
			if c.state {
				writeState(t, cfg.Source.LastKnown.Directory, api.URL)
			}
			s, err := newSources(cfg, slog.New(slog.DiscardHandler), Outside{})
			if err != nil {
				t.Fatal(err)
			}
			s.ahead.limit = c.limit
			began := time.Now()
			defer feed(t, s)()
			if c.inKernel {
				time.AfterFunc(c.early, func() { s.commit(nil) })
			}
			select {
			case at := <-asked:
				if after := at.Sub(began); after < c.early {
					t.Errorf("asked after %s already", after)
				}
			case <-time.After(30 * time.Second):
				t.Error("the API server was never asked")
			}
		})
	}
}

func writeKubeconfig(t *testing.T, path, server string) {
	t.Helper()
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "users": [{"name": "a", "user": {}}],
		"clusters": [{"name": "a", "cluster": {"server": %q}}]}`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeState writes a last-known state with one Service.
func writeState(t *testing.T, dir, server string) {
	t.Helper()
	text := fmt.Sprintf(`{"format":"edgeway last-known state","version":1,"server":%q,"at":"2026-01-01T00:00:00Z"}
{"service":{"namespace":"default","name":"a","clusterIPs":["10.96.0.1"],"ports":[{"name":"http","protocol":6,"port":80}]}}
`, server)
	text += fmt.Sprintf("{\"objects\":1,\"sha256\":\"%x\"}\n", sha256.Sum256([]byte(text)))
	if err := os.WriteFile(filepath.Join(dir, "lastknown.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
