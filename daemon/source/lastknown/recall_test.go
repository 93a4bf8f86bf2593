package lastknown

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// A dry run reads the saved state and the API server's addresses as the daemon does, but changes no file, not even a
// damaged snapshot.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		held := []source.Holding{{Protocol: plan.TCP, Port: 30080, Namespace: "ns", Name: "web"}}
		servers := provenAddrs()
		h := boot(t, dir)
		h.serve(everyKind()...)
		h.Commit(held)
		time.Sleep(2 * time.Second)
		h.stop()

		recall := func(url string) (*Store, error) {
			s := New(dir, Options{Cluster: server(url), Logger: slog.New(slog.DiscardHandler)})
			return s, s.Recall()
		}
		s, err := recall("https://192.0.2.1:6443")
		if err != nil || !slices.Equal(s.Holdings(), held) || !slices.Equal(s.ServerAddrs(), servers) {
			t.Errorf("recalled %v and %v, error %v", s.Holdings(), s.ServerAddrs(), err)
		}
		h = boot(t, dir)
		h.stop()
		if !slices.Equal(h.ServerAddrs(), servers) {
			t.Errorf("a start recalls %v", h.ServerAddrs())
		}
		if s, err := recall("https://192.0.2.2:6443"); err != nil || s.Holdings() != nil || s.ServerAddrs() != nil {
			t.Errorf("of another API server: %v and %v, error %v", s.Holdings(), s.ServerAddrs(), err)
		}
		snapshot := filepath.Join(dir, snapshotName)
		if err := os.WriteFile(snapshot, []byte("damaged\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := recall("https://192.0.2.1:6443"); err == nil {
			t.Error("a damaged state is no error")
		}
		if text, err := os.ReadFile(snapshot); string(text) != "damaged\n" {
			t.Errorf("the damaged state became %q, %v", text, err)
		}
		dir = filepath.Join(dir, "none")
		if _, err := recall("https://192.0.2.1:6443"); err != nil {
			t.Errorf("without a state: %v", err)
		}
	})
}
