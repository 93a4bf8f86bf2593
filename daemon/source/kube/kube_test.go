package kube

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"edgeway/daemon/source"
)

const service = `"spec":{"clusterIP":"10.96.0.%d","ports":[{"port":80}]}`

func clusterIP(last int) string { return fmt.Sprintf(service, last) }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

type running struct {
	*Source
	*memory
	log *lockedBuffer
}

// start runs a source until the test ends.
func start(t *testing.T, url, cluster string, change func(*Options)) *running {
	t.Helper()
	r := &running{memory: newMemory(), log: new(lockedBuffer)}
	o := Options{Kubeconfig: kubeconfig(t, url, cluster), Logger: slog.New(slog.NewTextHandler(r.log, nil))}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Source = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, r.memory) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(3 * time.Second):
			t.Error("Run does not end")
		}
	})
	return r
}

func (r *running) waitSynced(t *testing.T, within time.Duration) {
	t.Helper()
	select {
	case <-r.memory.synced:
	case <-time.After(within):
		t.Fatalf("not synced within %s: %+v", within, r.Status())
	}
}

func TestFollowsObjects(t *testing.T) {
	t.Parallel()
	for _, noStream := range []bool{false, true} {
		t.Run(fmt.Sprintf("noStream=%v", noStream), func(t *testing.T) {
			api := newFakeAPI(t)
			api.noStream = noStream
			api.Start()
			api.put("services", "web", clusterIP(1))
			api.put("endpointslices", "web", `"addressType":"IPv4","endpoints":[{"addresses":["10.1.0.1"]}]`)
			api.put("servicecidrs", "kubernetes", `"spec":{"cidrs":["10.96.0.0/16"]}`)
			r := start(t, api.URL, "", nil)
			r.waitSynced(t, 2*time.Second)
			if got := r.names(); got != "kubernetes web web" {
				t.Errorf("objects after the first list: %q", got)
			}
			api.put("services", "dns", clusterIP(2))
			eventually(t, "a new Service arrives", 2*time.Second, func() bool { return r.names() == "dns kubernetes web web" })
			api.remove("services", "dns")
			eventually(t, "a deleted Service goes", 2*time.Second, func() bool { return r.names() == "kubernetes web web" })
			api.put("services", "web", `"spec":{"clusterIP":"None"}`)
			eventually(t, "a Service that becomes headless goes", 2*time.Second, func() bool { return r.names() == "kubernetes web" })
			st := r.Status()
			if !st.Synced || st.Err != "" || time.Since(st.LastContact) > 5*time.Second {
				t.Errorf("status %+v", st)
			}
		})
	}
}

func TestUpdatesWithoutMeaningAreNotPassedOn(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "web", clusterIP(1))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 2*time.Second)
	before := r.count()
	api.put("services", "web", clusterIP(1)+`,"status":{"conditions":[{"type":"x","status":"True"}]}`)
	api.put("services", "mark", clusterIP(2))
	eventually(t, "the second Service arrives", 2*time.Second, func() bool { return r.names() == "mark web" })
	if got := r.count() - before; got != 1 {
		t.Errorf("%d objects were passed on, want 1", got)
	}
}

func TestSelectorsAndNamespacesAreTheServersToApply(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	r := start(t, api.URL, "", func(o *Options) {
		o.Namespaces, o.LabelSelector, o.NodeName = []string{"b", "a", "b"}, "edge=yes", "node-1"
	})
	r.waitSynced(t, 2*time.Second)
	want := map[string][2]string{
		"/api/v1/namespaces/a/services":                         {"!service.kubernetes.io/service-proxy-name,edge=yes", "spec.clusterIP!=None"},
		"/api/v1/namespaces/b/services":                         {"!service.kubernetes.io/service-proxy-name,edge=yes", "spec.clusterIP!=None"},
		"/apis/discovery.k8s.io/v1/namespaces/a/endpointslices": {"!service.kubernetes.io/headless,edge=yes", ""},
		"/apis/discovery.k8s.io/v1/namespaces/b/endpointslices": {"!service.kubernetes.io/headless,edge=yes", ""},
		"/api/v1/nodes": {"", "metadata.name=node-1"},
		"/apis/networking.k8s.io/v1/servicecidrs": {"", ""},
	}
	got := map[string][2]string{}
	for _, r := range api.seen() {
		got[r.path] = [2]string{r.get("labelSelector"), r.get("fieldSelector")}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("selectors\n got %v\nwant %v", got, want)
	}
}

// No permission for Nodes, no ServiceCIDRs in the API: neither holds up Synced, nor is it asked for
// over and over, nor is it a fault.
func TestOptionalResourcesMayBeDenied(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.hook = func(w http.ResponseWriter, r request) bool {
		switch r.resource {
		case "nodes":
			status(w, 403, "Forbidden", "nodes is forbidden")
		case "servicecidrs":
			http.NotFound(w, nil)
		default:
			return false
		}
		return true
	}
	api.Start()
	r := start(t, api.URL, "", func(o *Options) { o.NodeName = "node-1" })
	r.waitSynced(t, time.Second)
	time.Sleep(3 * time.Second)
	for _, resource := range []string{"nodes", "servicecidrs"} {
		if n := api.count(resource, "list", "stream", "watch"); n != 1 {
			t.Errorf("%d requests for %s, want 1", n, resource)
		}
	}
	if st := r.Status(); st.Err != "" {
		t.Errorf("status %+v", st)
	}
	if n := r.log.count("level=WARN"); n != 0 {
		t.Errorf("%d warnings", n)
	}
}

func TestOptionalResourceThatHangsDoesNotHoldUpSynced(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	release := make(chan struct{})
	api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			select {
			case <-release:
			case <-r.Context().Done():
			}
			return
		}
		api.serve(w, r)
	})
	api.Start()
	defer close(release)
	start(t, api.URL, "", func(o *Options) { o.NodeName = "node-1" }).waitSynced(t, 2*time.Second)
}

// One watch that is too late is no fault: the list that follows puts it right.
func TestOneExpiredWatchIsNoFault(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "a", clusterIP(1))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 2*time.Second)
	time.Sleep(1200 * time.Millisecond)
	api.setHook(func(w http.ResponseWriter, r request) bool {
		if r.verb == "watch" {
			status(w, 410, "Expired", "too old resource version")
		}
		return r.verb == "watch"
	})
	api.put("services", "b", clusterIP(2))
	api.CloseClientConnections()
	eventually(t, "b arrives", 10*time.Second, func() bool { return r.names() == "a b" })
	if n := r.log.count("410"); n > 0 {
		t.Errorf("%d lines about it", n)
	}
}

// Every watch is answered with 410 Gone, every list works.
func TestStormOfExpiredWatches(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.hook = func(w http.ResponseWriter, r request) bool {
		switch r.verb {
		case "stream":
			status(w, 422, "Invalid", "sendInitialEvents is forbidden")
		case "watch":
			status(w, 410, "Expired", "too old resource version")
		default:
			return false
		}
		return true
	}
	api.Start()
	api.put("services", "web", clusterIP(1))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 3*time.Second)
	const seconds = 8
	before := api.count("services", "list")
	time.Sleep(seconds * time.Second)
	if n := api.count("services", "list") - before; n > seconds {
		t.Errorf("%d lists in %d s", n, seconds)
	}
	if n := api.count("services", "list", "watch", "stream"); n > 3*(seconds+2) {
		t.Errorf("%d requests in about %d s", n, seconds)
	}
	if n := r.log.count("level=WARN"); n != 1 && n != 2 { // one for each resource at most
		t.Errorf("%d warnings", n)
	}
	if n := r.log.count("usable again"); n > 2 {
		t.Errorf("%d times usable again", n)
	}
	api.setHook(nil)
	api.put("services", "dns", clusterIP(2))
	eventually(t, "it recovers", 20*time.Second, func() bool { return r.names() == "dns web" && r.Status().Err == "" })
}

// The stream itself is answered with 410: client-go tries again at once, and only the pace holds it.
func TestStormOfExpiredStreams(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.hook = func(w http.ResponseWriter, _ request) bool {
		status(w, 410, "Expired", "too old resource version")
		return true
	}
	api.Start()
	r := start(t, api.URL, "", nil)
	const seconds = 5
	time.Sleep(seconds * time.Second)
	if n := api.count("services", "list", "stream"); n > seconds+1 || n < 2 {
		t.Errorf("%d lists in %d s", n, seconds)
	}
	if st := r.Status(); st.Synced || !strings.Contains(st.Err, "too old resource version (410)") {
		t.Errorf("status %+v", st)
	}
}

// The API server goes away and comes back with half of the stream, then with all of it.
func TestHalfAListRemovesNothing(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "a", clusterIP(1))
	api.put("services", "b", clusterIP(2))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 2*time.Second)
	api.remove("services", "b")
	eventually(t, "b goes", 2*time.Second, func() bool { return r.names() == "a" })

	half := make(chan struct{}, 100)
	api.setHook(func(w http.ResponseWriter, r request) bool {
		if r.resource != "services" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.verb {
		case "watch":
			status(w, 410, "Expired", "too old resource version")
		case "list":
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"ServiceList","metadata":{"resourceVersion":"500"},"items":[`)
			half <- struct{}{}
		default: // a stream that ends before the bookmark
			emit(w, "ADDED", body("services", "c", clusterIP(3), 300))
			half <- struct{}{}
		}
		return true
	})
	api.CloseClientConnections()
	for range 2 {
		select {
		case <-half:
		case <-time.After(10 * time.Second):
			t.Fatal("no list was asked for")
		}
	}
	if got := r.names(); got != "a" {
		t.Errorf("objects after half a list: %q", got)
	}
	api.put("services", "d", clusterIP(4))
	api.remove("services", "a")
	api.setHook(nil)
	eventually(t, "the whole list counts", 20*time.Second, func() bool { return r.names() == "d" })
}

// After its connections broke, the source goes on from the last event instead of listing again.
func TestBrokenConnectionResumesTheWatch(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "a", clusterIP(1))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 2*time.Second)
	time.Sleep(1200 * time.Millisecond) // a watch that broke at once would be listed again
	api.CloseClientConnections()
	api.put("services", "b", clusterIP(2))
	eventually(t, "b arrives", 5*time.Second, func() bool { return r.names() == "a b" })
	if n := api.count("services", "list", "stream"); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
}

func TestUnreachableServerIsNamedOnce(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := "https://" + l.Addr().String()
	l.Close()
	r := start(t, host, "", nil)
	want := "connect to " + host + ": connection refused"
	eventually(t, "the status says why", 2*time.Second, func() bool { return r.Status().Err == want })
	time.Sleep(4 * time.Second)
	if st := r.Status(); st.Synced || st.Err != want || !st.LastContact.IsZero() {
		t.Errorf("status %+v", st)
	}
	if n := r.log.count("connection refused"); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
}

// Without events, bookmarks or an end, a watch is taken for dead by the time silence has passed.
func TestContactAges(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 2*time.Second)
	contact := r.Status().LastContact
	api.CloseClientConnections()
	api.Listener.Close()
	eventually(t, "the fault shows", 5*time.Second, func() bool { return r.Status().Err != "" })
	if got := r.Status().LastContact; got.Sub(contact) > 500*time.Millisecond {
		t.Errorf("contact %s after the server was gone", got.Sub(contact))
	}
}

func TestAddressesOfTheServer(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	url := strings.Replace(api.URL, "127.0.0.1", "localhost", 1)
	r := start(t, url, "", nil)
	r.waitSynced(t, 2*time.Second)
	if got := fmt.Sprint(r.APIServerAddrs()); got != "[127.0.0.1]" {
		t.Errorf("addresses %s", got)
	}
	if r.APIServer() != url {
		t.Errorf("server %q", r.APIServer())
	}
}

var _ source.Sink = (*memory)(nil)
