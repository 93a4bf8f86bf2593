package sim

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// apiServer simulates the kube-apiserver features that a source uses: versioned objects, lists, watches, and a limited
// history.
type apiServer struct {
	net  *network
	cert tls.Certificate

	mu       sync.Mutex
	objects  map[string]map[string][]byte // keyed by resource, then by namespace/name
	version  int
	history  []event
	oldest   int           // the oldest version that a watch may start from
	changed  chan struct{} // closed and replaced on every change
	cut      chan struct{} // closed and replaced when all watches end
	token    string
	fault    misbehaviour
	requests int

	server   *http.Server
	listener *listener
}

type event struct {
	version              int
	resource, kind, body string
}

// misbehaviour describes how the API server misbehaves. The zero value describes a healthy server.
type misbehaviour struct {
	status     int           // the status of all responses, or 0
	retryAfter int           // seconds in the Retry-After header of responses with status
	body       string        // the body of all responses, which have status 200
	truncate   int           // the response size in bytes at which the server cuts off responses and watches
	delay      time.Duration // delay before each response
	hang       bool          // never respond
	lag        bool          // watches deliver no new events
	gone       bool          // all versions are too old for a watch
	noStream   bool          // streamed lists are rejected
	noBookmark bool
	everyOther bool   // only every second request is affected
	only       string // the affected resource, or "" for all resources
}

var resources = map[string][2]string{
	"services":       {"v1", "Service"},
	"endpointslices": {"discovery.k8s.io/v1", "EndpointSlice"},
	"nodes":          {"v1", "Node"},
	"servicecidrs":   {"networking.k8s.io/v1", "ServiceCIDR"},
}

func newAPIServer(n *network, cert tls.Certificate, token string) *apiServer {
	a := &apiServer{
		net: n, cert: cert, token: token, objects: map[string]map[string][]byte{}, version: 1000,
		changed: make(chan struct{}), cut: make(chan struct{}),
	}
	for r := range resources {
		a.objects[r] = map[string][]byte{}
	}
	return a
}

func (a *apiServer) start(addr string) {
	a.listener = a.net.listen(addr)
	a.server = &http.Server{
		Handler: a, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{a.cert}, CurvePreferences: []tls.CurveID{tls.X25519}},
	}
	go a.server.ServeTLS(a.listener, "", "")
}

func (a *apiServer) stop() {
	a.server.Close()
	a.net.reset()
}

func (a *apiServer) put(resource, key string, body []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	kind := "MODIFIED"
	if _, known := a.objects[resource][key]; !known {
		kind = "ADDED"
	}
	a.objects[resource][key] = withVersion(body, a.version)
	a.note(event{a.version, resource, kind, string(a.objects[resource][key])})
}

func (a *apiServer) remove(resource, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	last := withVersion(a.objects[resource][key], a.version)
	delete(a.objects[resource], key)
	a.note(event{a.version, resource, "DELETED", string(last)})
}

func (a *apiServer) note(e event) {
	a.history = append(a.history, e)
	close(a.changed)
	a.changed = make(chan struct{})
}

func withVersion(body []byte, version int) []byte {
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		panic(err)
	}
	object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(version)
	return encode(object)
}

// setFault sets the server's misbehaviour. If cut is true, setFault also ends all watches, so clients must start new
// watches during the fault.
func (a *apiServer) setFault(f misbehaviour, cut bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = f
	if f.gone {
		a.compact()
	}
	close(a.changed)
	a.changed = make(chan struct{})
	if cut {
		close(a.cut)
		a.cut = make(chan struct{})
	}
}

func (a *apiServer) compact() { a.history, a.oldest = nil, a.version }

// renumber simulates a replacement server that has the same objects with lower resource versions.
func (a *apiServer) renumber() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version = 10
	for _, objects := range a.objects {
		for key, body := range objects {
			a.version++
			objects[key] = withVersion(body, a.version)
		}
	}
	a.compact()
	a.oldest = 0 // a new server cannot recognize the old server's versions
}

func (a *apiServer) setToken(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = token
}

func (a *apiServer) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests++
	f, refused := a.fault, r.Header.Get("Authorization") != "Bearer "+a.token
	if f.everyOther && a.requests%2 == 0 || f.only != "" && !strings.HasSuffix(r.URL.Path, "/"+f.only) {
		f = misbehaviour{}
	}
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if f.truncate > 0 {
		w = &truncatedWriter{w, f.truncate}
	}
	// Without this request limit, a client that retries without a pause would stop the clock of the synctest bubble.
	if f.hang || a.asked() > 4*maxRequests {
		<-r.Context().Done()
		return
	}
	select {
	case <-time.After(f.delay):
	case <-r.Context().Done():
		return
	}
	switch {
	case refused:
		fail(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	case f.status > 0:
		if f.retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.retryAfter))
		}
		fail(w, f.status, "Simulated", "simulated")
	case f.body != "":
		io.WriteString(w, f.body)
	default:
		a.answer(w, r, f)
	}
}

func (a *apiServer) answer(w http.ResponseWriter, r *http.Request, f misbehaviour) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	kind, known := resources[resource]
	query := r.URL.Query()
	stream := query.Get("sendInitialEvents") == "true"
	a.mu.Lock()
	version, oldest := a.version, a.oldest
	objects := slices.Collect(maps.Values(a.objects[resource]))
	a.mu.Unlock()
	switch {
	case !known:
		fail(w, http.StatusNotFound, "NotFound", "no such resource")
	case query.Get("watch") != "true":
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"%d"},"items":[`, kind[0],
			kind[1], version)
		for i, o := range objects {
			if i > 0 {
				io.WriteString(w, ",")
			}
			w.Write(o)
		}
		io.WriteString(w, "]}")
	case stream && f.noStream:
		fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch")
	case stream:
		for _, o := range objects {
			send(w, "ADDED", string(o))
		}
		bookmark(w, kind, version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
		a.serveWatch(w, r, resource, version)
	default:
		from, _ := strconv.Atoi(query.Get("resourceVersion"))
		if from < oldest || f.gone {
			if from%2 == 0 { // kube-apiserver reports an expired version in either form
				fail(w, http.StatusGone, "Expired", "too old resource version")
				return
			}
			send(w, "ERROR", `{"apiVersion":"v1","kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old resource version"}`)
			return
		}
		a.serveWatch(w, r, resource, from)
	}
}

// serveWatch sends events to a watch. Like kube-apiserver, it also sends a bookmark every minute, and a final bookmark
// two seconds before the watch ends.
func (a *apiServer) serveWatch(w http.ResponseWriter, r *http.Request, resource string, from int) {
	w.(http.Flusher).Flush()
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	limit := time.Duration(seconds) * time.Second
	end, last, minute := time.NewTimer(limit), time.NewTimer(limit-2*time.Second), time.NewTicker(time.Minute)
	defer end.Stop()
	defer last.Stop()
	defer minute.Stop()
	a.mu.Lock()
	cut := a.cut
	a.mu.Unlock()
	for {
		a.mu.Lock()
		changed, f := a.changed, a.fault
		var events []event
		if !f.lag {
			i, _ := slices.BinarySearchFunc(a.history, from+1, func(e event, v int) int { return e.version - v })
			events, from = a.history[i:], a.version
		}
		a.mu.Unlock()
		for _, e := range events {
			if e.resource == resource {
				send(w, e.kind, e.body)
			}
		}
		select {
		case <-changed:
			continue
		case <-minute.C:
		case <-last.C:
		case <-end.C:
			return
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
		if !f.noBookmark {
			bookmark(w, resources[resource], from, "")
		}
	}
}

func bookmark(w http.ResponseWriter, kind [2]string, version int, more string) {
	send(w, "BOOKMARK", fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d"%s}}`, kind[0],
		kind[1], version, more))
}

func send(w http.ResponseWriter, kind, object string) {
	fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, object)
	w.(http.Flusher).Flush()
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":%q}`, code,
		reason, message)
}

// truncatedWriter cuts off a response, as a faulty proxy does.
type truncatedWriter struct {
	http.ResponseWriter
	left int
}

func (t *truncatedWriter) Write(p []byte) (int, error) {
	n := min(len(p), t.left)
	t.left -= n
	t.ResponseWriter.Write(p[:n])
	if n < len(p) {
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

func (t *truncatedWriter) Flush() { t.ResponseWriter.(http.Flusher).Flush() }
