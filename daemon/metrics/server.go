package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"edgeway/proxiers/healthcheck/httpbound"
)

// HandlerOptions configures the pages that Handler serves in addition to the metrics.
type HandlerOptions struct {
	// Config returns the effective configuration as TOML. Config must not be nil.
	Config func() string
	// Pprof adds /debug/pprof/ for clients on this host and, if HasUsers returns true, for all other clients.
	Pprof bool
	// HasUsers reports whether the server authenticates clients by password. Clients on other hosts can read
	// /debug/pprof/ only if HasUsers returns true.
	HasUsers func() bool
}

// Handler serves /metrics and three of kube-proxy's pages: /healthz ("ok" if the process responds), /proxyMode and,
// only for clients on this host, /configz. The page / lists the other paths.
func (m *Metrics) Handler(opts HandlerOptions) http.Handler {
	mux := http.NewServeMux()
	paths := []string{"/metrics", "/healthz", "/proxyMode", "/configz"}
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", text(func() string { return "ok" }))
	mux.HandleFunc("GET /proxyMode", text(func() string { return m.opts.Mode }))
	mux.HandleFunc("GET /configz", restrictTo(httpbound.FromLoopback, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/toml")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, opts.Config())
	}))
	if opts.Pprof {
		paths = append(paths, "/debug/pprof/")
		opts.addProfiles(mux)
	}
	mux.HandleFunc("GET /{$}", httpbound.Index(paths...))
	return mux
}

// addProfiles adds the pprof pages with restricted access, because profiles reveal names and addresses, and profiling
// uses CPU time.
func (o HandlerOptions) addProfiles(mux *http.ServeMux) {
	allowed := func(r *http.Request) bool {
		return httpbound.FromLoopback(r) || o.HasUsers()
	}
	for path, page := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.HandleFunc("GET /debug/pprof/"+path, restrictTo(allowed, page))
	}
}

// restrictTo serves the page only to the allowed clients. All other clients get a 404 response, as if the page did not
// exist.
func restrictTo(allowed func(*http.Request) bool, page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !allowed(r) {
			http.NotFound(w, r)
			return
		}
		page(w, r)
	}
}

func text(say func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = fmt.Fprint(w, say())
	}
}
