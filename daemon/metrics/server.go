package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"edgeway/proxiers/healthcheck/httpbound"
)

// HandlerOptions are what Handler serves beside the metrics.
type HandlerOptions struct {
	// Config gives the effective configuration as TOML; never nil.
	Config func() string
	// Pprof adds /debug/pprof/.
	Pprof bool
}

// Handler serves /metrics, and kube-proxy's /healthz ("ok": the process answers), /proxyMode
// and, to clients on this host alone, /configz. The page / lists the others.
func (m *Metrics) Handler(opts HandlerOptions) http.Handler {
	mux := http.NewServeMux()
	paths := []string{"/metrics", "/healthz", "/proxyMode", "/configz"}
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", text(func() string { return "ok" }))
	mux.HandleFunc("GET /proxyMode", text(func() string { return m.opts.Mode }))
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, r *http.Request) {
		if !httpbound.FromHere(r) {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/toml")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, opts.Config())
	})
	if opts.Pprof {
		paths = append(paths, "/debug/pprof/")
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	mux.HandleFunc("GET /{$}", httpbound.Index(paths...))
	return mux
}

func text(say func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = fmt.Fprint(w, say())
	}
}
