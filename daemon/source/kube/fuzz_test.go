package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	"sigs.k8s.io/yaml"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/test/hostile"
)

// fixedServer is an API server that returns the same response to every request.
type fixedServer struct {
	mu          sync.Mutex
	contentType string
	body        []byte
}

func (a *fixedServer) set(protobuf bool, body []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.contentType, a.body = runtime.ContentTypeJSON, body
	if protobuf {
		a.contentType = runtime.ContentTypeProtobuf
	}
}

func (a *fixedServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", a.contentType)
	_, _ = w.Write(a.body)
}

func newFixedServer(f *testing.F) (*fixedServer, *Source) {
	f.Helper()
	a := &fixedServer{}
	server := httptest.NewServer(a)
	f.Cleanup(server.Close)
	path := filepath.Join(f.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k}}], clusters: [{name: k, cluster: {server: %q}}]}", server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
	s, err := New(Options{Kubeconfig: path, NodeName: "here", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	return a, s
}

func on(s *Source, f *feed) *session { return &session{feed: f, client: s.client.Load()} }

// checkReceived passes a store to the function use, and fails the test if the store sends an invalid object or the
// function allocates too much memory.
func checkReceived(t *testing.T, f *feed, body []byte, use func(*store)) {
	t.Helper()
	events, done := make(chan event), make(chan struct{})
	go func() {
		defer close(done)
		for e := range events {
			if e.upsert != nil {
				checkObject(t, e.upsert)
			}
		}
	}()
	before := allocated()
	use(&store{feed: f, ctx: t.Context(), events: events, sentObjects: map[source.Key]source.Object{}})
	close(events)
	<-done
	// The Protobuf stream reader may double its buffer repeatedly, up to 16 MB.
	if n := allocated() - before; n > 64<<20+4096*uint64(len(body)) {
		t.Errorf("%d bytes took %d of memory", len(body), n)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// checkObject fails the test unless the object passes convert.Validate or has problems. The text of each problem must
// be short and contain no control characters.
func checkObject(t *testing.T, obj source.Object) {
	t.Helper()
	key := obj.Key()
	// Edgeway relies on the API server to validate the names of Nodes and ServiceCIDRs.
	named := key.Namespace != "" || len(validation.IsDNS1123Subdomain(key.Name)) == 0
	if err := convert.Validate(obj); err != nil && len(obj.Problems()) == 0 && named {
		t.Error(err)
	}
	if len(obj.Problems()) > 50 {
		t.Errorf("%q has %d problems", key, len(obj.Problems()))
	}
	for _, p := range obj.Problems() {
		if bad := hostile.FindControl(p.Field + p.Message); bad != "" || len(p.Field+p.Message) > 1000 {
			t.Errorf("problem %q: %s", p, bad)
		}
	}
}

// emptyTypes returns an empty object and an empty list of the kind that a feed reads, and the kind's API group.
func emptyTypes(f *feed) (obj, list runtime.Object, group runtime.GroupVersioner) {
	switch f.resource {
	case "services":
		return &corev1.Service{}, &corev1.ServiceList{}, corev1.SchemeGroupVersion
	case "nodes":
		return &corev1.Node{}, &corev1.NodeList{}, corev1.SchemeGroupVersion
	case "endpointslices":
		return &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}, discoveryv1.SchemeGroupVersion
	}
	return &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}, networkingv1.SchemeGroupVersion
}

// objectOf decodes an object from the fuzzing corpus, or returns nil if the feed does not read its kind.
func objectOf(f *feed, text []byte) runtime.Object {
	var is metav1.TypeMeta
	obj, _, _ := emptyTypes(f)
	kind := strings.TrimPrefix(reflect.TypeOf(obj).String(), "*v1.")
	if yaml.Unmarshal(text, &is) != nil || is.Kind != kind || yaml.Unmarshal(text, obj) != nil {
		return nil
	}
	return obj
}

func encoderOf(tb testing.TB, f *feed, protobuf bool) (info runtime.SerializerInfo, enc runtime.Encoder) {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme),
		networkingv1.AddToScheme(scheme)); err != nil {
		tb.Fatal(err)
	}
	codecs, mediaType := serializer.NewCodecFactory(scheme).WithoutConversion(), runtime.ContentTypeJSON
	if protobuf {
		mediaType = runtime.ContentTypeProtobuf
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		tb.Fatalf("no serializer for %s", mediaType)
	}
	_, _, group := emptyTypes(f)
	return info, codecs.EncoderForVersion(info.Serializer, group)
}

// FuzzList sends each feed arbitrary responses to a list request, as JSON or Protobuf.
func FuzzList(f *testing.F) {
	answer, s := newFixedServer(f)
	for i, feed := range s.feeds {
		for _, protobuf := range []bool{false, true} {
			_, list, _ := emptyTypes(feed)
			var items []runtime.Object
			for _, text := range hostile.Objects(f) {
				if obj := objectOf(feed, text); obj != nil {
					items = append(items, obj)
				}
			}
			if err := meta.SetList(list, items); err != nil || len(items) < 2 {
				f.Fatalf("list of %d %s: %v", len(items), feed.resource, err)
			}
			_, enc := encoderOf(f, feed, protobuf)
			raw, err := runtime.Encode(enc, list)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(byte(i), protobuf, raw)
			f.Add(byte(i), protobuf, raw[:len(raw)/2])
		}
		f.Add(byte(i), false, bytes.Join(hostile.Objects(f), nil))
	}
	f.Fuzz(func(t *testing.T, which byte, protobuf bool, body []byte) {
		feed := s.feeds[int(which)%len(s.feeds)]
		answer.set(protobuf, body)
		checkReceived(t, feed, body, func(st *store) {
			list := feed.newList()
			if err := on(s, feed).request(&metav1.ListOptions{}).Do(t.Context()).Into(list); err != nil {
				_ = describe(s.APIServer(), "list", err)
				return
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				t.Fatal(err)
			}
			objects := make([]any, len(items))
			for i := range items {
				objects[i] = items[i]
			}
			_ = st.Replace(objects, "1")
		})
	})
}

func FuzzWatch(f *testing.F) {
	answer, s := newFixedServer(f)
	for i, feed := range s.feeds {
		for _, protobuf := range []bool{false, true} {
			f.Add(byte(i), protobuf, watchSeed(f, feed, protobuf))
		}
		f.Add(byte(i), false, []byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"message":"\u001b[2J"}}{"type":"BOOKMARK","object":{}}{"type":"?"}{}`))
		f.Add(byte(i), true, []byte{0x7f, 0xff, 0xff, 0xff, 0})
	}
	f.Fuzz(func(t *testing.T, which byte, protobuf bool, body []byte) {
		feed := s.feeds[int(which)%len(s.feeds)]
		answer.set(protobuf, body)
		checkReceived(t, feed, body, func(st *store) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := &call{verb: "watch", maxSilence: maxListSilence}
			inner, err := on(s, feed).request(&metav1.ListOptions{Watch: true}).Watch(c.withContext(ctx))
			if err != nil {
				_ = describe(s.APIServer(), "watch", err)
				return
			}
			w := (&watcher{call: c}).start(ctx, on(s, feed), inner)
			defer w.Stop()
			for e := range w.ResultChan() {
				// The reflector ignores objects that are not of the feed's type.
				if reflect.TypeOf(e.Object) != reflect.TypeOf(feed.example) {
					continue
				}
				switch e.Type {
				case watch.Added, watch.Modified:
					_ = st.Update(e.Object)
				case watch.Deleted:
					_ = st.Delete(e.Object)
				}
			}
		})
	})
}

// watchSeed returns a watch stream that adds, modifies and deletes each object in the fuzzing corpus.
func watchSeed(f *testing.F, feed *feed, protobuf bool) []byte {
	f.Helper()
	info, enc := encoderOf(f, feed, protobuf)
	var out bytes.Buffer
	stream := streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(&out), info.StreamSerializer.Serializer)
	w := restwatch.NewEncoder(stream, enc)
	for _, text := range hostile.Objects(f) {
		obj := objectOf(feed, text)
		for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
			if obj == nil {
				continue
			}
			if err := w.Encode(&watch.Event{Type: kind, Object: obj}); err != nil {
				f.Fatal(err)
			}
		}
	}
	return out.Bytes()
}

// FuzzKubeconfig reads arbitrary kubeconfigs. New must return either a Source with a server URL, or an error that names
// the file.
func FuzzKubeconfig(f *testing.F) {
	path := filepath.Join(f.TempDir(), "kubeconfig")
	const whole = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], clusters: [{name: k, cluster: {%s}}], users: [{name: u, user: {%s}}]}`
	for _, c := range [][2]string{
		{"server: 'https://192.0.2.1:6443'", "token: secret"},
		{"server: 'https://[2001:db8::1%eth0]', proxy-url: 'socks5://192.0.2.2'", "username: a, password: b"},
		{"server: 'http://a', insecure-skip-tls-verify: true, tls-server-name: b", "tokenFile: kubeconfig"},
		{"server: 'https://a', certificate-authority-data: AAAA", "client-certificate-data: AAAA, client-key-data: AAAA"},
		{"server: 'https://a', certificate-authority: .", "client-certificate: kubeconfig, client-key: kubeconfig"},
		{"server: \"https://a\\e[2J\"", "exec: {apiVersion: client.authentication.k8s.io/v1, command: true, interactiveMode: Never}"},
		{"server: 'unix:///run/x'", "auth-provider: {name: oidc}"},
		{"server: 'https://a', certificate-authority: /dev/zero", "token: a"},
		{"server: 'https://a'", "tokenFile: /proc/self/pagemap"},
		{"server: ':'", "as: a, as-groups: [b], as-user-extra: {c: [d]}"},
	} {
		f.Add(fmt.Sprintf(whole, c[0], c[1]), true)
		f.Add(fmt.Sprintf(whole, c[0], c[1]), false)
	}
	f.Add("&a [*a, *a]", false)
	f.Add("current-context: c\ncontexts: [null]\nclusters: null\n", false)
	f.Fuzz(func(t *testing.T, text string, allowExec bool) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Kubeconfig: path, AllowExecPlugins: allowExec, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "kubeconfig "+path+": ") || s != nil {
				t.Errorf("error %q, source %v", err, s)
			}
			return
		}
		if s.APIServer() == "" {
			t.Error("a source without a server")
		}
	})
}
