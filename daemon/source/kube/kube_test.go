package kube

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
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

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

type runningSource struct {
	*Source
	*memory
	log *lockedBuffer
}

func start(t *testing.T, url, cluster string, change func(*Options)) *runningSource {
	t.Helper()
	r := prepare(t, url, cluster, change)
	r.run(t)
	return r
}

func prepare(t *testing.T, url, cluster string, change func(*Options)) *runningSource {
	t.Helper()
	r := &runningSource{memory: newMemory(), log: new(lockedBuffer)}
	o := Options{Kubeconfig: kubeconfig(t, url, cluster), Logger: slog.New(slog.NewTextHandler(r.log, nil))}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Source = s
	return r
}

func (r *runningSource) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, r.memory) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Run does not end")
		}
	})
}

func (r *runningSource) waitSynced(t *testing.T, within time.Duration) {
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
			r.waitSynced(t, 30*time.Second)
			if got := r.names(); got != "kubernetes web web" {
				t.Errorf("objects after the first list: %q", got)
			}
			api.put("services", "dns", clusterIP(2))
			eventually(t, "a new Service arrives", 30*time.Second,
				func() bool { return r.names() == "dns kubernetes web web" })
			api.remove("services", "dns")
			eventually(t, "a deleted Service goes", 30*time.Second,
				func() bool { return r.names() == "kubernetes web web" })
			api.put("services", "web", `"spec":{"clusterIP":"None"}`)
			eventually(t, "a Service that becomes headless goes", 30*time.Second,
				func() bool { return r.names() == "kubernetes web" })
			st := r.Status()
			if !st.Synced || st.Fault.Message != "" || time.Since(st.LastContact) > 5*time.Second {
				t.Errorf("status %+v", st)
			}
			lists := 1
			if noStream {
				lists = 2 // the server refuses the first request, which is for a stream
			}
			if n := api.count("services", "list", "stream"); n != lists {
				t.Errorf("%d lists of Services, want %d: changes must arrive over the watch", n, lists)
			}
		})
	}
}

func TestIrrelevantUpdatesAreDropped(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	api.put("services", "web", clusterIP(1))
	r := start(t, api.URL, "", nil)
	r.waitSynced(t, 30*time.Second)
	before := r.count()
	api.put("services", "web", clusterIP(1)+`,"status":{"conditions":[{"type":"x","status":"True"}]}`)
	api.put("services", "mark", clusterIP(2))
	eventually(t, "the second Service arrives", 30*time.Second, func() bool { return r.names() == "mark web" })
	if got := r.count() - before; got != 1 {
		t.Errorf("%d objects were passed on, want 1", got)
	}
}

func TestServerAppliesSelectorsAndNamespaces(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	r := start(t, api.URL, "", func(o *Options) {
		o.Namespaces, o.LabelSelector, o.NodeName = []string{"b", "a", "b"}, "edge=yes", "node-1"
	})
	r.waitSynced(t, 30*time.Second)
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

var _ source.Sink = (*memory)(nil)
