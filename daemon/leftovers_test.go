package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers"
)

// fakeBackends simulates the list of backends: nftables, two variants of another program, and an alias for one of these
// variants. cleaned records the cleanups. fail maps the name of a backend to the error from its Cleanup function, and
// the name of the alias to the error from its Resolve function.
type fakeBackends struct {
	cleaned []string
	fail    map[string]error
}

func (f *fakeBackends) list() []proxiers.Component {
	out := []proxiers.Component{{
		Name:    "alias",
		Resolve: func(context.Context) (string, error) { return "variant-b", f.fail["alias"] },
	}}
	for _, name := range []string{"nftables", "variant-a", "variant-b"} {
		out = append(out, f.component(name))
	}
	return out
}

func (f *fakeBackends) component(name string) proxiers.Component {
	return proxiers.Component{Name: name, Cleanup: func(context.Context, proxiers.Env) error {
		f.cleaned = append(f.cleaned, name)
		return f.fail[name]
	}}
}

func TestPickResolvesAlias(t *testing.T) {
	f := &fakeBackends{}
	for name, want := range map[string]string{"nftables": "nftables", "alias": "variant-b"} {
		if got, err := resolveBackend(t.Context(), f.list(), name); err != nil || got.Name != want {
			t.Errorf("%s: %s, %v; want %s", name, got.Name, err, want)
		}
	}
	f.fail = map[string]error{"alias": errors.New("no program")}
	for _, name := range []string{"alias", "none"} {
		if got, err := resolveBackend(t.Context(), f.list(), name); err == nil {
			t.Errorf("%s is taken for %q", name, got.Name)
		}
	}
}

func TestUnusedComponents(t *testing.T) {
	f := &fakeBackends{}
	followers := []follower{
		{Component: f.component("flowtable")},
		{Component: f.component("other"), enabled: true},
		{Component: proxiers.Component{Name: "leaves nothing"}},
	}
	for backend, want := range map[string]string{
		"nftables":  "variant-a variant-b flowtable",
		"variant-a": "nftables variant-b flowtable",
		"variant-b": "nftables variant-a flowtable",
		"":          "nftables variant-a variant-b flowtable",
	} {
		var names []string
		for _, c := range unusedComponents(f.list(), backend, followers) {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("beside %s: %s, want %s", backend, got, want)
		}
	}
}

func TestLeftoversAreRemovedAfterFullSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackends{fail: map[string]error{
			"variant-a": proxiers.ErrUnsupported,
			"variant-b": errors.New("lock is held"),
		}}
		var log strings.Builder
		l := newLeftoverCleaner(unusedComponents(f.list(), "nftables", nil), env(&log), "nftables", "variant-b")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.run(t.Context())
		}()

		synctest.Wait()
		l.says(t, "the rules of variant-b stay until nftables has programmed the kernel")
		if len(f.cleaned) > 0 || !l.isSwitching() {
			t.Fatalf("cleaned up after %v before the first full sync", f.cleaned)
		}

		l.notifyFullSync()
		synctest.Wait()
		l.says(t, "could not remove the rules of variant-b, which is not configured", "lock is held")
		since := l.faults()[0].Since
		if !slices.Equal(f.cleaned, []string{"variant-a", "variant-b"}) || !l.isSwitching() {
			t.Errorf("cleaned up after %v, want both", f.cleaned)
		}
		if !strings.Contains(log.String(), "lock is held") || strings.Contains(log.String(), "variant-a") {
			t.Errorf("logged are\n%s", &log)
		}

		l.notifyFullSync()
		synctest.Wait()
		if got := l.faults()[0].Since; got != since || len(f.cleaned) != 3 {
			t.Errorf("after the second failure: since %s, want %s; cleaned up after %v", got, since, f.cleaned)
		}

		time.Sleep(cleanupRetry - time.Second)
		if synctest.Wait(); len(f.cleaned) != 3 || strings.Count(log.String(), "lock is held") != 1 {
			t.Errorf("cleaned up after %v before it is time, logged are\n%s", f.cleaned, &log)
		}
		f.fail = nil
		l.pending() // the lock in pending makes the assignment visible to the next attempt
		time.Sleep(time.Second)
		<-ended // no other full sync is necessary
		if c := l.faults(); len(c) > 0 || l.isSwitching() || len(f.cleaned) != 4 {
			t.Errorf("at the end: %v, cleaned up after %v", c, f.cleaned)
		}
		if !strings.Contains(log.String(), `msg="backend switched" from=variant-b to=nftables`) {
			t.Errorf("logged are\n%s", &log)
		}
		l.notifyFullSync() // run has returned, so no goroutine receives
		l.notifyFullSync()
	})
}

func env(log io.Writer) proxiers.Env {
	return proxiers.Env{Logger: slog.New(slog.NewTextHandler(log, nil))}
}

func (l *leftoverCleaner) says(t *testing.T, words ...string) {
	t.Helper()
	got := fmt.Sprint(l.faults())
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("faults are %s, want %q", got, w)
		}
	}
}

// Starting the daemon does not count as a backend switch, so it causes no fault.
func TestLeftoversOfEarlierDaemonCauseNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackends{}
		for _, before := range []string{"", "nftables"} {
			l := newLeftoverCleaner(unusedComponents(f.list(), "nftables", nil), env(io.Discard), "nftables", before)
			if c := l.faults(); len(c) > 0 || l.isSwitching() {
				t.Errorf("before %q: %v", before, c)
			}
			l.notifyFullSync()
			l.run(t.Context())
		}
		if len(f.cleaned) != 4 {
			t.Errorf("cleaned up after %v", f.cleaned)
		}
	})
}

// A cleanup does not count as failed if the daemon stops while the cleanup is running.
func TestInterruptedLeftoverCleanupIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log strings.Builder
		l := newLeftoverCleaner([]proxiers.Component{{
			Name: "slow", Cleanup: func(ctx context.Context, _ proxiers.Env) error {
				cancel()
				return ctx.Err()
			},
		}}, env(&log), "nftables", "slow")
		l.notifyFullSync()
		l.run(ctx)
		if log.Len() > 0 || !l.pending() {
			t.Errorf("pending %v, logged:\n%s", l.pending(), &log)
		}
	})
}
