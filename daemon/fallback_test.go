package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/daemon/config"
	"edgeway/proxiers"
)

// A backend that the host may come to be able to run is stood in for; any other one is not, and neither is one that failed in another way.
func TestFallback(t *testing.T) {
	backend := func(name string, err error, fallsBack bool) proxiers.Component {
		return proxiers.Component{
			Name: name, Probe: func(context.Context) error { return err }, Traits: proxiers.Traits{FallsBack: fallsBack},
		}
	}
	missing := fmt.Errorf("%w: a module is not loaded", proxiers.ErrUnsupported)
	list := []proxiers.Component{
		backend("works", nil, false), backend("lacks", missing, false), backend("later", missing, true), backend("fails", errors.New("time-out"), true),
		{Name: "alias", Resolve: func(context.Context) (string, error) { return "works", nil }},
	}
	for _, c := range []struct {
		name, fallback, serves, instead string
		fault                           string
	}{
		{"works", "lacks", "works", "", ""},
		{"later", "works", "works", "later", ""},
		{"later", "alias", "works", "later", ""},
		{"later", "none", "", "", "or set proxy.backend"},
		{"later", "later", "", "", "or set proxy.backend"},
		{"later", "lacks", "", "", "nor can proxy.fallback: backend lacks"},
		{"lacks", "works", "", "", "or set proxy.backend"},
		{"fails", "works", "", "", "time-out"},
	} {
		got, instead, err := choose(t.Context(), list, config.Proxy{Backend: c.name, Fallback: c.fallback})
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) || instead != nil {
				t.Errorf("%s, or %s: %v, want %q", c.name, c.fallback, err, c.fault)
			}
		case err != nil || got.Name != c.serves || (instead != nil) != (c.instead != ""):
			t.Errorf("%s, or %s: %s, %v, %v", c.name, c.fallback, got.Name, instead, err)
		case instead != nil && (instead.wanted.Name != c.instead || !errors.Is(instead.why, proxiers.ErrUnsupported)):
			t.Errorf("%s, or %s: instead of %s, as %v", c.name, c.fallback, instead.wanted.Name, instead.why)
		}
	}
}

// The configuration's backend is switched to once it can run, also if the first reload fails.
func TestComeBack(t *testing.T) {
	var probes, reloads atomic.Int32
	i := &instance{logger: slog.New(slog.DiscardHandler), component: proxiers.Component{Name: "works"}, instead: &instead{
		why: proxiers.ErrUnsupported,
		wanted: proxiers.Component{Name: "later", Probe: func(context.Context) error {
			if probes.Add(1) < 3 {
				return proxiers.ErrUnsupported
			}
			return nil
		}},
	}}
	i.opts.Reload = func(context.Context) error {
		if reloads.Add(1) == 1 {
			return errReloading
		}
		return nil
	}
	if c := i.fallback(); len(c) != 1 || !strings.Contains(c[0].Message, "works serves instead of later") {
		t.Errorf("conditions %+v", c)
	}
	i.comeBack(t.Context(), time.Millisecond)
	if probes.Load() != 4 || reloads.Load() != 2 {
		t.Errorf("%d probes and %d reloads, want 4 and 2", probes.Load(), reloads.Load())
	}
}
