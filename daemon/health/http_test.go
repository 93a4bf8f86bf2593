package health

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// A client on another host receives only the ID and severity of a fault. Only clients on this host receive the fault's
// text, and the server escapes control characters in the text.
func TestOtherHostsGetNoFaultText(t *testing.T) {
	state := synced()
	state.Backend.Err, state.Backend.Attempts = "secret of nft \x7f\u202e\u009b2J", 1
	h := New(fixedState{state}, fixedSource{
		"kube",
		source.Status{Fault: fault.Fault{Message: "secret of kube"}, LastContact: time.Now()},
	}).
		Handler(HandlerOptions{OnAnswer: func(string, int) {}})
	ask := func(path, from string) string {
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.RemoteAddr = from
		got := httptest.NewRecorder()
		h.ServeHTTP(got, req)
		return got.Body.String()
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/readyz?verbose", "/readyz?verbose=1&exclude=x"} {
		const want = `"faults":[{"id":"backend-sync","severity":"warning"},{"id":"source-kube","severity":"warning"}]}`
		for _, from := range []string{"192.0.2.1:1", "[2001:db8::1]:1"} {
			if got := ask(path, from); !strings.HasSuffix(got, want) {
				t.Errorf("%s tells %s %s", path, from, got)
			}
		}
		for _, from := range []string{"127.0.0.1:1", "[::1]:1"} {
			if got := ask(path, from); !strings.Contains(got, `secret of nft \u007f\u202e\u009b2J`) ||
				!strings.Contains(got, "secret of kube") {
				t.Errorf("%s tells %s %s", path, from, got)
			}
		}
	}
	if got, want := ask("/", "192.0.2.1:1"), "/healthz\n/livez\n/readyz\n"; got != want {
		t.Errorf("/ lists %q, want %q", got, want)
	}
	for _, path := range []string{"/", "/healthz/x", "/metrics", "/debug/pprof/", "/.."} {
		if got := ask(path, "192.0.2.1:1"); strings.Contains(got, "edgeway") || strings.Contains(got, "condition") ||
			len(got) > 100 {
			t.Errorf("%s says %q", path, got)
		}
	}
}
