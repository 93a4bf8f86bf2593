package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// faultRow is a row in the fault table: a fault, and the expected behavior of the daemon during and after the fault.
type faultRow struct {
	name string
	fault
	fresh  bool          // the daemon still receives the API server's updates
	limit  time.Duration // the additional time until the daemon sends its next request after the fault
	reason string        // the reason that the daemon reports
	most   int64         // the maximum number of requests, or 0 for five requests per second

	d        *daemon
	proxy    *faultProxy
	n        *namespace
	nodePort string

	began             time.Time
	requests          int64
	ticks             int
	lasted            time.Duration
	repaired          time.Time
	noticed, healed   time.Duration // zero until the event happens
	staleness, oldest float64
	reasons           map[string]bool // all reasons that the daemon has reported
}

// The daemon abandons a list request after 75 s without a response. If the daemon already suspects a fault of the API
// server, the daemon abandons any request after 30 s without a response.
const (
	faultLasts  = 95 * time.Second
	noticeLimit = 90 * time.Second
	healLimit   = 15 * time.Second
	// listGap is the maximum time between a failed list request and the next list request.
	listGap = 15 * time.Second
)

func faultRows() []*faultRow {
	return []*faultRow{
		{name: "packets dropped", fault: fault{drop: true}, reason: "client connection lost", limit: 10 * time.Second},
		{name: "no answer", fault: fault{answer: hangs}, reason: "no answer in time", limit: 75 * time.Second},
		{name: "silent in the middle", fault: fault{mute: true}, reason: "the connection went silent", limit: 75 * time.Second},
		{name: "delayed by 2 s", fault: fault{delay: 2 * time.Second}, fresh: true, limit: 10 * time.Second},
		{name: "cut off after 10 bytes", fault: fault{answer: cutOff}, reason: "cut off", limit: listGap},
		{name: "empty, ends at once", fault: fault{answer: content("application/vnd.kubernetes.protobuf;stream=watch", "")}, reason: "the watch ended immediately", limit: listGap},
		{name: "410", fault: fault{answer: refuses(410, "Expired", "")}, reason: "(410)", limit: listGap},
		{name: "410 for watches only", fault: fault{answer: expiredWatches}, fresh: true, limit: listGap},
		{name: "429, Retry-After 20", fault: fault{answer: refuses(429, "TooManyRequests", "20")}, reason: "(429)", limit: 22 * time.Second, most: 25},
		{name: "500", fault: fault{answer: refuses(500, "InternalError", "")}, reason: "(500)", limit: listGap},
		{name: "HTML with 200", fault: fault{answer: content("text/html", "<html>Welcome to the hotel</html>")}, reason: "text/html", limit: listGap},
		{name: "another kind", fault: fault{answer: content("application/json", `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`)}, reason: "from", limit: listGap},
	}
}

func hangs(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

func content(kind, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", kind)
		fmt.Fprint(w, body)
	}
}

func refuses(code int, reason, retryAfter string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not now","reason":%q,"code":%d}`, reason, code)
	}
}

func expiredWatches(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	if q := r.URL.Query(); q.Get("watch") != "" && q.Get("sendInitialEvents") == "" {
		refuses(410, "Expired", "")(w, r, pass)
		return
	}
	pass.ServeHTTP(w, r)
}

func cutOff(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	pass.ServeHTTP(&shortened{w, 10}, r)
}

type shortened struct {
	http.ResponseWriter
	left int
}

// Unwrap lets http.ResponseController find the wrapped writer.
func (s *shortened) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *shortened) Write(b []byte) (int, error) {
	n, err := s.ResponseWriter.Write(b[:min(s.left, len(b))])
	s.left -= n
	if err == nil && s.left == 0 {
		s.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// Fault proxies simulate faults of an API server, or of a proxy in front of the API server. The test verifies the
// daemon's behavior during each fault, and that the daemon recovers in time. All faults happen at the same time, each
// on a different host.
func TestFaultTable(t *testing.T) {
	t.Parallel()
	rows := faultRows()
	for _, r := range rows {
		r.prepare(t)
	}
	for _, r := range rows {
		r.d.waitFor(longTimeout, r.d.healthy)
		r.n = r.d.newNamespace()
		_, r.nodePort = r.n.createWeb("shop")
	}
	for _, r := range rows {
		r.d.waitFor(longTimeout, answers(r.d.client, r.nodePort, "ep1"))
	}
	for _, r := range rows {
		r.breaks()
	}
	each(rows, func(r *faultRow) {
		for ; time.Since(r.began) < faultLasts; time.Sleep(500 * time.Millisecond) {
			r.watch()
		}
	})
	for _, r := range rows {
		r.repair()
	}
	each(rows, (*faultRow).awaitRecovery)
	t.Logf("%-24s %10s %6s %9s %9s %7s  %s", "fault", "requests/s", "CPU %", "noticed s", "stale s", "healed s", "said")
	within := rows[0].d.extendLimit(healLimit)
	for _, r := range rows {
		r.judge(within)
	}
}

func each(rows []*faultRow, do func(*faultRow)) {
	var all sync.WaitGroup
	for _, r := range rows {
		all.Go(func() { do(r) })
	}
	all.Wait()
}

func (r *faultRow) prepare(t *testing.T) {
	t.Helper()
	l := newLab(t)
	r.d, r.proxy = l.newDaemon(), newFaultProxy(l)
	r.proxy.kubeconfig(filepath.Join(r.d.dir, "kubeconfig"))
	r.d.start()
}

func (r *faultRow) breaks() {
	r.requests, r.ticks = -r.proxy.requests.Load(), -r.d.cpuTicks(2)
	r.began, r.reasons = time.Now(), map[string]bool{}
	r.proxy.setFault(&r.fault)
}

func (r *faultRow) repair() {
	r.lasted = time.Since(r.began)
	r.staleness = r.stalenessSeconds()
	r.requests += r.proxy.requests.Load()
	r.ticks += r.d.cpuTicks(2)
	r.n.setEndpoints("shop", ep2Addr)
	r.repaired = time.Now()
	r.proxy.setFault(nil)
}

// healthMessage matches the message in the JSON response from /healthz if the API server is unreachable or rejects
// requests.
var healthMessage = regexp.MustCompile(`Source kube is (?:unreachable|rejecting requests), [^:]*: ((?:[^"\\]|\\.)*)`)

func (r *faultRow) watch() {
	r.oldest = max(r.oldest, r.stalenessSeconds())
	_, body, err := r.d.get(healthAddr, "/healthz")
	if err != nil {
		return
	}
	if found := healthMessage.FindStringSubmatch(body); found != nil {
		r.reasons[found[1]] = true
		r.noticed = cmp.Or(r.noticed, time.Since(r.began))
	}
}

// awaitRecovery waits until the daemon has received the change that it missed during the fault, and no longer reports
// the fault.
func (r *faultRow) awaitRecovery() {
	arrived := answersSoon(r.d.client, r.nodePort, "ep2")
	for began := time.Now(); time.Since(began) < 3*time.Minute; time.Sleep(250 * time.Millisecond) {
		_, body, err := r.d.get(healthAddr, "/healthz")
		if err == nil && !strings.Contains(body, "Source kube") && arrived() == nil {
			r.healed = time.Since(r.repaired)
			return
		}
	}
}

// stalenessSeconds returns the staleness metric's value in seconds, or -1 if the daemon does not export the metric.
func (r *faultRow) stalenessSeconds() float64 {
	_, body, err := r.d.get(metricsAddr, "/metrics")
	if err != nil {
		return -1
	}
	_, value, _ := strings.Cut(body, "\nedgeway_source_staleness_seconds{source=\"kube\"} ")
	value, _, _ = strings.Cut(value, "\n")
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return -1
	}
	return seconds
}

// countLogLines returns the number of log lines that report the start of an API server fault.
func (r *faultRow) countLogLines() int {
	r.d.t.Helper()
	log, err := os.ReadFile(r.d.logFile())
	r.d.must(err)
	return len(regexp.MustCompile(`"fault began" .*fault=source-kube`).FindAll(log, -1))
}

func (r *faultRow) judge(heal time.Duration) {
	t, seconds := r.d.t, r.lasted.Seconds()
	t.Helper()
	perSecond, cpu := float64(r.requests)/seconds, float64(r.ticks)/seconds
	said := fmt.Sprint(r.countLogLines(), " lines")
	for why := range r.reasons {
		said += "; " + why
	}
	t.Logf("%-24s %10.2f %6.1f %9.1f %9.1f %7.1f  %s", r.name, perSecond, cpu, r.noticed.Seconds(), r.staleness,
		r.healed.Seconds(), said)
	if perSecond > 5 || cpu > 10 {
		t.Errorf("%s: %.1f requests a second, %.1f %% of a processor; at most 5 and 10", r.name, perSecond, cpu)
	}
	if r.most > 0 && r.requests > r.most {
		t.Errorf("%s: %d requests, want at most %d", r.name, r.requests, r.most)
	}
	if r.healed == 0 || r.healed > heal+r.limit {
		t.Errorf("%s: healed after %s", r.name, r.healed)
	}
	if r.fresh {
		if r.oldest <= 0 || r.oldest > noticeLimit.Seconds() {
			t.Errorf("%s: stale by %.0f s although the API server answers", r.name, r.oldest)
		}
		return
	}
	if r.noticed == 0 || r.noticed > noticeLimit {
		t.Errorf("%s: noticed after %s", r.name, r.noticed)
	}
	if r.staleness < seconds-3 {
		t.Errorf("%s: it lasted %.0f s and looks %.0f s old", r.name, seconds, r.staleness)
	}
	if r.countLogLines() > 2 || !strings.Contains(said, r.reason) {
		t.Errorf("%s: the health should give the reason %q, and the log a line: %s", r.name, r.reason, said)
	}
}
