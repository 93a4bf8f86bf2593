package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"edgeway/daemon/config"
	"edgeway/daemon/source/api"
	"edgeway/daemon/tracker"
)

// annotationCases maps each annotation key to an example value and its expected effect.
var annotationCases = map[string]struct {
	value, want string
	effect      func(*tracker.Service) any
}{
	api.AnnotationLastChange: {
		"2026-01-02T03:04:05Z", "2026-01-02 03:04:05 +0000 UTC",
		func(s *tracker.Service) any { return s.Slices[0].TriggerTime },
	},
	api.AnnotationTrafficHint: {"LongLived", "true", func(s *tracker.Service) any { return s.Spec.LongLived }},
	api.AnnotationScheduler:   {"rr", "rr", func(s *tracker.Service) any { return s.Spec.Scheduler }},
	api.AnnotationWeights:     {"edge-1=3", "edge-1=3", func(s *tracker.Service) any { return weights(s) }},
}

func weights(s *tracker.Service) string {
	var out []string
	for _, w := range s.Spec.Weights {
		out = append(out, fmt.Sprintf("%s=%d", w.Node, w.Weight))
	}
	return strings.Join(out, ",")
}

// Every source must preserve all annotations, because a dropped annotation would silently have no effect.
func TestSourcesPassAllAnnotations(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "default", Name: "web", Annotations: map[string]string{},
		Labels: map[string]string{api.LabelServiceName: "web"},
	}
	for _, key := range api.Annotations() {
		meta.Annotations[key] = annotationCases[key].value
	}
	service, slice := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: 80}}},
	}, &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: meta, AddressType: "IPv4",
		Ports: []discoveryv1.EndpointPort{{Name: new(string), Port: new(int32(80))}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
	}
	dir := t.TempDir()
	manifests := filepath.Join(dir, "manifests.json")
	if err := os.WriteFile(manifests, append(encode(t, service), encode(t, slice)...), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(fakeAPIServer(t, service, slice))
	defer server.Close()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf("current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: %q}}]\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"file", "kube", "lastknown"} { // lastknown serves the state that kube saved
		cfg := config.Default()
		cfg.Source.LastKnown.Directory = filepath.Join(dir, "state")
		switch of {
		case "file":
			cfg.Source.File.Paths = []string{manifests}
		case "lastknown":
			server.CloseClientConnections()
			server.Close()
			fallthrough
		default:
			cfg.Source.Kube.Kubeconfig = kubeconfig
		}
		s, stop := begin(t, cfg)
		await(t, s.tracker.Changed())
		snap, ok := s.tracker.Snapshot()
		if !ok || len(snap.Services) != 1 || len(snap.Services[0].Slices) != 1 {
			t.Fatalf("%s: %+v", of, snap)
		}
		for _, key := range api.Annotations() {
			if got := fmt.Sprint(annotationCases[key].effect(snap.Services[0])); got != annotationCases[key].want {
				t.Errorf("%s: %s has the effect %q, want %q", of, key, got, annotationCases[key].want)
			}
		}
		s.commit(nil)
		stop()
	}
}

func encode(t *testing.T, object any) []byte {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// fakeAPIServer returns a handler that simulates an API server whose objects never change.
func fakeAPIServer(t *testing.T, service *corev1.Service, slice *discoveryv1.EndpointSlice) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		send := func(kind string, object runtime.Object) {
			event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Object: object}}
			_, _ = w.Write(encode(t, event))
		}
		end := metav1.ObjectMeta{
			ResourceVersion: "7",
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}
		switch resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; {
		case r.URL.Query().Get("sendInitialEvents") != "true":
		case resource == "services":
			send("ADDED", service)
			send("BOOKMARK", &corev1.Service{TypeMeta: service.TypeMeta, ObjectMeta: end})
		case resource == "endpointslices":
			send("ADDED", slice)
			send("BOOKMARK", &discoveryv1.EndpointSlice{TypeMeta: slice.TypeMeta, ObjectMeta: end})
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	}
}
