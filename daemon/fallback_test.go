package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"edgeway/daemon/config"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
)

// Edgeway uses the backend in proxy.fallback if this host cannot run the configured backend, but not if that backend's
// probe fails for another reason.
func TestFallback(t *testing.T) {
	backend := func(name string, err error) proxiers.Component {
		return proxiers.Component{Name: name, Probe: func(context.Context) error { return err }}
	}
	alias := func(name, of string, err error) proxiers.Component {
		return proxiers.Component{Name: name, Resolve: func(context.Context) (string, error) { return of, err }}
	}
	missing := fmt.Errorf("%w: a module is not loaded", proxiers.ErrUnsupported)
	list := []proxiers.Component{
		backend("works", nil), backend("lacks", missing), backend("fails", errors.New("time-out")),
		alias("alias", "works", nil), alias("dead", "lacks", nil), alias("unknown", "", missing),
	}
	for _, c := range []struct {
		name, fallback, serves string
		instead                bool
		fault                  string
	}{
		{"works", "lacks", "works", false, ""},
		{"lacks", "works", "works", true, ""},
		{"lacks", "alias", "works", true, ""},
		{"unknown", "works", "works", true, ""},
		{"lacks", "none", "", false, "or set proxy.backend"},
		{"lacks", "fails", "", false, "cannot run the backend in proxy.fallback either: backend fails"},
		{"lacks", "unknown", "", false, "cannot run the backend in proxy.fallback either: backend unknown"},
		{"lacks", "dead", "", false, "a module is not loaded; or set"},
		{"unknown", "unknown", "", false, "a module is not loaded; or set"},
		{"fails", "works", "", false, "time-out"},
	} {
		got, unsupported, err := choose(t.Context(), list, config.Proxy{Backend: c.name, Fallback: c.fallback})
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) || unsupported != nil {
				t.Errorf("%s, or %s: %v, want %q", c.name, c.fallback, err, c.fault)
			}
		case err != nil || got.Name != c.serves || errors.Is(unsupported, proxiers.ErrUnsupported) != c.instead:
			t.Errorf("%s, or %s: %s, %v, %v", c.name, c.fallback, got.Name, unsupported, err)
		}
	}
}

func TestFallbackIsWarning(t *testing.T) {
	var log bytes.Buffer
	i := &instance{
		Core:      &Core{cfg: &config.Config{Proxy: config.Proxy{Backend: "wanted"}}, logger: slog.New(slog.NewTextHandler(&log, nil))},
		component: proxiers.Component{Name: "works"}, unsupportedErr: proxiers.ErrUnsupported,
	}
	i.logFallback()
	if c := i.fallbackFaults(); len(c) != 1 || c[0].Severity != fault.Warning ||
		!strings.Contains(c[0].Message, "uses the backend works, because this host cannot run wanted") {
		t.Errorf("faults %+v", c)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "instead_of=wanted") {
		t.Errorf("log: %s", &log)
	}
	i.unsupportedErr = nil
	log.Reset()
	if i.logFallback(); len(i.fallbackFaults()) > 0 || log.Len() > 0 {
		t.Errorf("the configured backend serves: %+v, %s", i.fallbackFaults(), &log)
	}
}
