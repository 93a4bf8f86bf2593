package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"edgeway/proxiers"
)

// fakeBackends are a list as the real one is: two programs, of which one has two variants and a name for
// whichever of them the host uses. cleaned notes their clean-ups, fail those that fail.
type fakeBackends struct {
	cleaned []string
	fail    map[string]error
}

func (f *fakeBackends) list() []proxiers.Backend {
	out := []proxiers.Backend{{Name: "alias"}}
	for _, name := range []string{"nftables", "variant-a", "variant-b"} {
		out = append(out, proxiers.Backend{Name: name, Cleanup: func(context.Context, proxiers.Options) error {
			f.cleaned = append(f.cleaned, name)
			return f.fail[name]
		}})
	}
	return out
}

type fakeProxier struct{ proxiers.Proxier }

type fakeAlias struct {
	proxiers.Proxier
	actual string
}

func (f fakeAlias) Actual() string { return f.actual }

// What is in force is never cleaned up, under whichever name it is configured.
func TestAllOtherBackendsAreCleanedUp(t *testing.T) {
	for _, tt := range []struct {
		backend proxiers.Backend
		proxier proxiers.Proxier
		want    string
	}{
		{proxiers.Backend{Name: "nftables", Cleanup: nothing}, fakeProxier{}, "variant-a variant-b"},
		{proxiers.Backend{Name: "variant-a", Cleanup: nothing}, fakeProxier{}, "nftables variant-b"},
		{proxiers.Backend{Name: "variant-b", Cleanup: nothing}, fakeAlias{actual: "variant-b"}, "nftables variant-a"},
		{proxiers.Backend{Name: "alias"}, fakeAlias{actual: "variant-a"}, "nftables variant-b"},
		{proxiers.Backend{Name: "alias"}, fakeAlias{actual: "variant-b"}, "nftables variant-a"},
	} {
		actual, err := actualBackend(tt.backend, tt.proxier)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, b := range others(new(fakeBackends).list(), actual) {
			names = append(names, b.Name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("beside %s (%s): %s, want %s", tt.backend.Name, actual, got, tt.want)
		}
	}
	if actual, err := actualBackend(proxiers.Backend{Name: "alias"}, fakeProxier{}); err == nil {
		t.Errorf("a second name without Actual is taken for %q", actual)
	}
}

func nothing(context.Context, proxiers.Options) error { return nil }

func TestLeftoversGoWhenTheBackendServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackends{fail: map[string]error{"variant-a": proxiers.ErrUnsupported, "variant-b": errors.New("lock is held")}}
		var log strings.Builder
		l := newLeftovers(others(f.list(), "nftables"), "nftables", "variant-b")
		l.logger = slog.New(slog.NewTextHandler(&log, nil))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.run(t.Context())
		}()

		synctest.Wait()
		l.says(t, "the rules of variant-b stay until nftables serves")
		if len(f.cleaned) > 0 || !l.switching() {
			t.Fatalf("cleaned up after %v before the first full sync", f.cleaned)
		}

		l.noteFull()
		synctest.Wait()
		l.says(t, "Rules of backend variant-b are left beside those of nftables", "lock is held")
		since := l.conditions()[0].Since
		if !slices.Equal(f.cleaned, []string{"variant-a", "variant-b"}) || !l.switching() {
			t.Errorf("cleaned up after %v, want both", f.cleaned)
		}
		if !strings.Contains(log.String(), "lock is held") || strings.Contains(log.String(), "variant-a") {
			t.Errorf("logged are\n%s", &log)
		}

		l.noteFull()
		synctest.Wait()
		if got := l.conditions()[0].Since; got != since || len(f.cleaned) != 3 {
			t.Errorf("after the second failure: since %s, want %s; cleaned up after %v", got, since, f.cleaned)
		}

		f.fail = nil
		l.noteFull()
		<-ended
		if c := l.conditions(); len(c) > 0 || l.switching() || len(f.cleaned) != 4 {
			t.Errorf("at the end: %v, cleaned up after %v", c, f.cleaned)
		}
		if !strings.Contains(log.String(), `msg="backend switched" from=variant-b to=nftables`) {
			t.Errorf("logged are\n%s", &log)
		}
		l.noteFull() // nobody listens any more
		l.noteFull()
	})
}

func (l *leftovers) says(t *testing.T, words ...string) {
	t.Helper()
	got := fmt.Sprint(l.conditions())
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("conditions are %s, want %q", got, w)
		}
	}
}

// A start is no switch: nothing is said unless something is wrong.
func TestLeftoversOfAnEarlierDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackends{}
		for _, before := range []string{"", "nftables"} {
			l := newLeftovers(others(f.list(), "nftables"), "nftables", before)
			l.logger = slog.New(slog.DiscardHandler)
			if c := l.conditions(); len(c) > 0 || l.switching() {
				t.Errorf("before %q: %v", before, c)
			}
			l.noteFull()
			l.run(t.Context())
		}
		if len(f.cleaned) != 4 {
			t.Errorf("cleaned up after %v", f.cleaned)
		}
	})
}

// A daemon that stops while it cleans up has not failed.
func TestLeftoversWhenStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log strings.Builder
		l := newLeftovers([]proxiers.Backend{{Name: "slow", Cleanup: func(ctx context.Context, _ proxiers.Options) error {
			cancel()
			return ctx.Err()
		}}}, "nftables", "slow")
		l.logger = slog.New(slog.NewTextHandler(&log, nil))
		l.noteFull()
		l.run(ctx)
		if log.Len() > 0 || !l.pending() {
			t.Errorf("pending %v, logged:\n%s", l.pending(), &log)
		}
	})
}
