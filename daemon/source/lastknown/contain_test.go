package lastknown

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"edgeway/proxiers/contain"
)

// After the writer panics, the next write saves the unsaved changes.
func TestWriterContinuesAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		logger := slog.New(slog.NewTextHandler(t.Output(), nil))
		api, writes := newMemory(), 0
		s := New(dir, Options{Logger: logger, Changes: api.changes, Objects: api.sorted, Cluster: func() Cluster {
			if writes++; writes == 1 {
				panic("on purpose")
			}
			return Cluster{Server: "https://192.0.2.1:6443"}
		}})
		parts := contain.New(logger)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- parts.Run(ctx, "source lastknown",
				func(ctx context.Context) error { return s.Run(ctx, newMemory()) })
		}()
		synctest.Wait()
		h := &host{Store: s, api: api}
		h.serve(everyKind()...)
		time.Sleep(2 * debounce)
		if faults := parts.Faults(); len(faults) != 1 {
			t.Errorf("faults %+v, want one panic", faults)
		}
		time.Sleep(contain.Pause)
		h.Commit(nil)
		time.Sleep(retryDelay + debounce)
		st, err := readState(dir, nil)
		if err != nil {
			t.Fatalf("after %d writes: %v", writes, err)
		}
		saved := newMemory()
		for _, o := range st.objects {
			saved.Upsert(o)
		}
		if diff := cmp.Diff(everyKind(), saved.sorted(), equate); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
