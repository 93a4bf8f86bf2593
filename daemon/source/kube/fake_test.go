package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"edgeway/daemon/source"
)

// fakeAPI is a fake API server with real HTTP connections. fakeAPI stores its objects as JSON.
type fakeAPI struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	objects  map[string]map[string]string // keyed by resource and name
	rv       int
	events   chan struct{} // closed and replaced on every change
	changes  []change
	requests []request

	// hook reports whether it has responded to the request. The caller of hook holds mu.
	hook func(w http.ResponseWriter, r request) bool
	// brokenHandler, if not nil, responds to all requests. When breakWith replaces brokenHandler, it closes
	// brokenChanged.
	brokenHandler http.HandlerFunc
	brokenChanged chan struct{}
	// noStream disables streamed lists, and noBookmarks disables bookmarks.
	noStream, noBookmarks bool
	// noMinuteBookmarks restricts bookmarks to the end of a watch. The server closes a connection that is silent for
	// idleLimit, as a proxy does.
	noMinuteBookmarks bool
	idleLimit         time.Duration
	// fakeAPI.hang closes hangStarted to simulate an API server that hangs with open connections.
	hangStarted chan struct{}
}

type change struct {
	rv                   int
	resource, kind, body string
}

type request struct {
	at             time.Time
	resource, verb string // verb is list, stream or watch
	query          map[string][]string
	path           string
}

func (r request) get(key string) string {
	if v := r.query[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := unstarted(t)
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

func unstarted(t *testing.T) *fakeAPI {
	return &fakeAPI{
		t: t, objects: map[string]map[string]string{}, rv: 100, events: make(chan struct{}),
		brokenChanged: make(chan struct{}), hangStarted: make(chan struct{}),
	}
}

var kinds = map[string][2]string{
	"services":       {"v1", "Service"},
	"nodes":          {"v1", "Node"},
	"endpointslices": {"discovery.k8s.io/v1", "EndpointSlice"},
	"servicecidrs":   {"networking.k8s.io/v1", "ServiceCIDR"},
}

// body returns an object as JSON. rest is the JSON text of the object's other fields, such as `"spec":{}`.
func body(resource, name, rest string, rv int) string {
	if rest != "" {
		rest = "," + rest
	}
	labels := ""
	if resource == "endpointslices" {
		labels = `,"labels":{"kubernetes.io/service-name":"` + name + `"}`
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":"ns","name":%q,"resourceVersion":"%d"%s}%s}`,
		kinds[resource][0], kinds[resource][1], name, rv, labels, rest)
}

func (f *fakeAPI) put(resource, name, rest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	kind := "MODIFIED"
	if _, ok := f.objects[resource][name]; !ok {
		kind = "ADDED"
	}
	if f.objects[resource] == nil {
		f.objects[resource] = map[string]string{}
	}
	f.objects[resource][name] = body(resource, name, rest, f.rv)
	f.changed(change{f.rv, resource, kind, f.objects[resource][name]})
}

func (f *fakeAPI) remove(resource, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	old := f.objects[resource][name]
	delete(f.objects[resource], name)
	f.changed(change{f.rv, resource, "DELETED", old})
}

func (f *fakeAPI) changed(c change) {
	f.changes = append(f.changes, c)
	close(f.events)
	f.events = make(chan struct{})
}

func (f *fakeAPI) setHook(hook func(w http.ResponseWriter, r request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *fakeAPI) count(resource string, verbs ...string) (n int) {
	for _, r := range f.seen() {
		if r.resource == resource && slices.Contains(verbs, r.verb) {
			n++
		}
	}
	return n
}

func (f *fakeAPI) seen() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

func verbOf(r *http.Request) string {
	switch q := r.URL.Query(); {
	case q.Get("sendInitialEvents") == "true":
		return "stream"
	case q.Get("watch") == "true":
		return "watch"
	}
	return "list"
}

// breakWith closes all watches, and makes h respond to all further requests. A real API server also closes each watch
// after a while.
func (f *fakeAPI) breakWith(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.brokenHandler = h
	close(f.brokenChanged)
	f.brokenChanged = make(chan struct{})
}

func (f *fakeAPI) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.brokenHandler = hang
	close(f.hangStarted)
}

func (f *fakeAPI) repair() { f.breakWith(nil) }

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	req := request{at: time.Now(), query: r.URL.Query(), path: r.URL.Path}
	req.resource = r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	req.verb = verbOf(r)
	f.mu.Lock()
	f.requests = append(f.requests, req)
	if broken := f.brokenHandler; broken != nil {
		f.mu.Unlock()
		broken(w, r)
		return
	}
	f.mu.Unlock()
	f.answer(w, r, req)
}

// answer responds to a request as a working API server does.
func (f *fakeAPI) answer(w http.ResponseWriter, r *http.Request, req request) {
	f.mu.Lock()
	hook, rv := f.hook, f.rv
	objects := slices.Collect(maps.Values(f.objects[req.resource]))
	if hook != nil && hook(w, req) {
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")
	switch {
	case req.verb == "list":
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"%d"},"items":[%s]}`,
			kinds[req.resource][0], kinds[req.resource][1], rv, strings.Join(objects, ","))
	case req.verb == "stream" && f.noStream:
		status(w, 422, "Invalid", "sendInitialEvents is forbidden for watch")
	case req.verb == "stream":
		for _, o := range objects {
			emit(w, "ADDED", o)
		}
		emit(w, "BOOKMARK", fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}`,
			kinds[req.resource][0], kinds[req.resource][1], rv))
		f.serveWatch(w, r, req, rv)
	default:
		from, _ := strconv.Atoi(req.get("resourceVersion"))
		f.serveWatch(w, r, req, from)
	}
}

// serveWatch serves a watch. Like a real API server, serveWatch sends a bookmark every minute and two seconds before
// the end of the watch.
func (f *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request, req request, from int) {
	w.(http.Flusher).Flush()
	seconds, _ := strconv.Atoi(req.get("timeoutSeconds"))
	limit := time.Duration(seconds) * time.Second
	end, last, minute := time.NewTimer(limit), time.NewTimer(limit-2*time.Second), time.NewTicker(time.Minute)
	defer end.Stop()
	defer last.Stop()
	defer minute.Stop()
	f.mu.Lock()
	cut := f.brokenChanged
	f.mu.Unlock()
	for {
		f.mu.Lock()
		for _, c := range f.changes {
			if c.rv > from && c.resource == req.resource {
				emit(w, c.kind, c.body)
			}
		}
		from = f.rv
		wake, minutes := f.events, !f.noMinuteBookmarks
		var idle <-chan time.Time
		if f.idleLimit > 0 {
			idle = time.After(f.idleLimit)
		}
		f.mu.Unlock()
		select {
		case <-wake:
		case <-minute.C:
			if minutes {
				f.bookmark(w, req, from)
			}
		case <-idle:
			panic(http.ErrAbortHandler)
		case <-f.hangStarted:
			<-r.Context().Done()
			return
		case <-last.C:
			f.bookmark(w, req, from)
		case <-end.C:
			return
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fakeAPI) bookmark(w http.ResponseWriter, req request, rv int) {
	if !f.noBookmarks {
		emit(w, "BOOKMARK", fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d"}}`,
			kinds[req.resource][0], kinds[req.resource][1], rv))
	}
}

func emit(w http.ResponseWriter, kind, object string) {
	fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, object)
	w.(http.Flusher).Flush()
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	out, _ := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
		"reason": reason, "message": message,
	})
	w.Write(out)
}

func kubeconfig(t *testing.T, url, cluster string) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: %q%s}}]
users: [{name: u, user: {token: secret}}]
`, url, cluster)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type memory struct {
	mu      sync.Mutex
	objects map[source.Key]source.Object
	upserts int
	synced  chan struct{}
	once    sync.Once
}

func newMemory() *memory {
	return &memory{objects: map[source.Key]source.Object{}, synced: make(chan struct{})}
}

func (m *memory) Upsert(o source.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[o.Key()] = o
	m.upserts++
}

func (m *memory) Delete(k source.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, k)
}

func (m *memory) Synced() { m.once.Do(func() { close(m.synced) }) }

func (m *memory) names() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for k := range m.objects {
		if k.Kind != source.KindAPIServer {
			out = append(out, k.Name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.upserts
}

func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// String returns the feed's name for test failures.
func (f *feed) String() string { return fmt.Sprintf("%s of namespace %q", f.resource, f.namespace) }
