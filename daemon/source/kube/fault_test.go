package kube

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"edgeway/proxiers/fault"
)

// Neither a missing permission for Nodes nor a missing ServiceCIDR API is a fault. The source calls Synced without
// delay and does not repeat the denied requests.
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
	r.waitSynced(t, 30*time.Second)
	time.Sleep(3 * time.Second)
	for _, resource := range []string{"nodes", "servicecidrs"} {
		if n := api.count(resource, "list", "stream", "watch"); n != 1 {
			t.Errorf("%d requests for %s, want 1", n, resource)
		}
	}
	if st := r.Status(); st.Fault.Message != "" {
		t.Errorf("status %+v", st)
	}
	if n := r.log.count("level=WARN"); n != 0 {
		t.Errorf("%d warnings", n)
	}
	if f, ok := r.faultOf(RangesID); ok {
		t.Errorf("an API server without ServiceCIDRs is a fault: %+v", f)
	}
}

// Without permission to read ServiceCIDRs, Edgeway does not know the ranges of Service addresses. A warning reports the
// missing permission until an operator grants it.
func TestForbiddenServiceCIDRsCauseFault(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.hook = func(w http.ResponseWriter, r request) bool {
		if r.resource == serviceCIDRs {
			status(w, 403, "Forbidden", "servicecidrs is forbidden")
			return true
		}
		return false
	}
	api.Start()
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 30*time.Second)
	f, ok := r.faultOf(RangesID)
	if !ok || f.Severity != fault.Warning || !strings.HasPrefix(f.Fix, "kubectl apply -f ") ||
		r.Status().Fault.Message != "" {
		t.Errorf("fault %+v, status %+v", f, r.Status())
	}
}

func TestRefusingServerIsReachable(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.hook = func(w http.ResponseWriter, _ request) bool {
		status(w, 403, "Forbidden", "services is forbidden")
		return true
	}
	api.Start()
	r := start(t, api.URL, "", nil)
	eventually(t, "the refusal is told", 30*time.Second, func() bool { return r.Status().Fault.Message != "" })
	if st := r.Status(); !st.Refused || !strings.HasPrefix(st.Fault.Fix, "kubectl apply -f ") {
		t.Errorf("status %+v", st)
	}
}

func TestHungOptionalResourceDoesNotDelaySynced(t *testing.T) {
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
	start(t, api.URL, "", func(o *Options) { o.NodeName = "node-1" }).waitSynced(t, 10*time.Second)
}

func TestOneExpiredWatchIsNoFault(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "a", clusterIP(1))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 30*time.Second)
	time.Sleep(1200 * time.Millisecond)
	var answered sync.Map // the resources whose watch has received 410
	api.setHook(func(w http.ResponseWriter, r request) bool {
		if r.verb != "watch" {
			return false
		}
		if _, again := answered.LoadOrStore(r.resource, true); again {
			return false
		}
		status(w, 410, "Expired", "too old resource version")
		return true
	})
	api.put("services", "b", clusterIP(2))
	api.CloseClientConnections()
	eventually(t, "b arrives", 30*time.Second, func() bool { return r.names() == "a b" })
	// The search text includes the parentheses, because 410 alone could match part of a port number.
	if n := r.log.count("(410)") + r.log.count("too old resource version"); n > 0 {
		t.Errorf("%d lines about it:\n%s", n, r.log)
	}
}

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
	r.waitSynced(t, 30*time.Second)
	const seconds = 8
	before := api.count("services", "list")
	time.Sleep(seconds * time.Second)
	if n := api.count("services", "list") - before; n > seconds {
		t.Errorf("%d lists in %d s", n, seconds)
	}
	if n := api.count("services", "list", "watch", "stream"); n > 3*(seconds+2) {
		t.Errorf("%d requests in about %d s", n, seconds)
	}
	api.setHook(nil)
	api.put("services", "dns", clusterIP(2))
	eventually(t, "it recovers", 30*time.Second,
		func() bool { return r.names() == "dns web" && r.Status().Fault.Message == "" })
}

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
	if st := r.Status(); st.Synced || !strings.Contains(st.Fault.Message, "too old resource version (410)") {
		t.Errorf("status %+v", st)
	}
}

// If the API server sends only half of a list after an outage, the source removes no object until it has received a
// whole list.
func TestPartialListRemovesNothing(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "a", clusterIP(1))
	api.put("services", "b", clusterIP(2))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 30*time.Second)
	api.remove("services", "b")
	eventually(t, "b goes", 30*time.Second, func() bool { return r.names() == "a" })

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
		default: // the stream ends before the bookmark
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
	eventually(t, "the whole list counts", 30*time.Second, func() bool { return r.names() == "d" })
}

// After a connection breaks, the source resumes the watch after the last event instead of requesting a list.
func TestBrokenConnectionResumesWatch(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "a", clusterIP(1))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 30*time.Second)
	time.Sleep(1200 * time.Millisecond) // a watch that breaks immediately would cause a new list
	api.CloseClientConnections()
	api.put("services", "b", clusterIP(2))
	eventually(t, "b arrives", 30*time.Second, func() bool { return r.names() == "a b" })
	if n := api.count("services", "list", "stream"); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
}

func TestUnreachableServerIsReported(t *testing.T) {
	t.Parallel()
	const host = "https://127.0.0.1:1" // the kernel never picks port 1 for another test's server
	r := start(t, host, "", nil)
	want := "connect to " + host + ": connection refused"
	eventually(t, "the status says why", 30*time.Second, func() bool { return r.Status().Fault.Message == want })
	time.Sleep(4 * time.Second)
	if st := r.Status(); st.Synced || st.Fault.Message != want || !st.LastContact.IsZero() || st.Refused {
		t.Errorf("status %+v", st)
	}
}

func TestLastContactAfterServerIsGone(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 30*time.Second)
	contact := r.Status().LastContact
	api.CloseClientConnections()
	api.Listener.Close()
	eventually(t, "the fault shows", 30*time.Second, func() bool { return r.Status().Fault.Message != "" })
	if got := r.Status().LastContact; got.Sub(contact) > 500*time.Millisecond {
		t.Errorf("contact %s after the server was gone", got.Sub(contact))
	}
}
