package health

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/healthcheck/httpbound"
	"edgeway/proxiers/plan"
)

// body begins with the fields of kube-proxy's response, in the same order and with the same meaning. Edgeway's own
// fields follow. Unlike in kube-proxy, "healthy" is false until the first sync has succeeded.
type body struct {
	LastUpdated  time.Time             `json:"lastUpdated"`
	CurrentTime  time.Time             `json:"currentTime"`
	NodeEligible *bool                 `json:"nodeEligible,omitempty"`
	Healthy      bool                  `json:"healthy"`
	Status       map[string]familyBody `json:"status"`
	// For clients on other hosts, Faults contains only IDs and severities. A fault's other fields may contain
	// addresses, paths, Service names, and the output of servers and programs.
	Faults []fault.Fault `json:"faults"`
}

type familyBody struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// HandlerOptions configures Handler.
type HandlerOptions struct {
	// Families are the address families that Edgeway syncs. Each family has an entry in "status".
	Families []plan.Family
	// OnAnswer receives the request path and the status code of every response. OnAnswer must not be nil.
	OnAnswer func(path string, code int)
}

// Handler serves /healthz, /readyz and /livez. /healthz returns 200 if the host is healthy and the Node is not leaving
// the cluster, and 503 otherwise. /readyz returns 200 if Report.Ready is true, and 503 otherwise. /livez returns 200 if
// the host is healthy, and 503 otherwise. Handler ignores query parameters, such as verbose in /readyz?verbose. The
// path / lists the other paths.
func (c *Checker) Handler(opts HandlerOptions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", httpbound.Index("/healthz", "/livez", "/readyz"))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, req *http.Request) {
		r := c.Report()
		opts.answer(w, req, r, &r.NodeEligible, r.Healthy && r.NodeEligible)
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, req *http.Request) {
		r := c.Report()
		opts.answer(w, req, r, &r.NodeEligible, r.Ready)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, req *http.Request) {
		r := c.Report()
		opts.answer(w, req, r, nil, r.Healthy)
	})
	return mux
}

func (o HandlerOptions) answer(w http.ResponseWriter, req *http.Request, r Report, eligible *bool, ok bool) {
	b := body{
		LastUpdated: r.LastSync.UTC(), CurrentTime: r.Time.UTC(), NodeEligible: eligible, Healthy: r.Healthy,
		Status: map[string]familyBody{}, Faults: []fault.Fault{},
	}
	detail := httpbound.FromLoopback(req)
	for _, f := range r.Faults {
		if !detail {
			f = fault.Fault{ID: f.ID, Severity: f.Severity}
		}
		b.Faults = append(b.Faults, f)
	}
	for _, f := range o.Families {
		b.Status[f.String()] = familyBody{LastUpdated: r.LastSync.UTC(), Healthy: r.Healthy}
	}
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	} else {
		// kube-proxy's clients expect a recent lastUpdated from a healthy server, even if nothing has changed.
		b.LastUpdated = b.CurrentTime
	}
	out, err := json.Marshal(b)
	if err != nil {
		code, out = http.StatusInternalServerError, []byte(`{"healthy":false}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text.Clean(string(out)))
	o.OnAnswer(req.URL.Path, code)
}
