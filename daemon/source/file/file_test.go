package file

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

type memory struct {
	mu               sync.Mutex
	objects          map[source.Key]source.Object
	upserts, deletes int
	synced           int
}

func newMemory() *memory { return &memory{objects: map[source.Key]source.Object{}} }

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
	m.deletes++
}

func (m *memory) Synced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced++
}

func (m *memory) names() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for k := range m.objects {
		if k.Kind != source.KindDocument && k.Kind != source.KindManifest {
			out = append(out, k.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// problems returns all problems as strings, with paths relative to dir.
func (m *memory) problems(dir string) (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.objects {
		for _, p := range o.Problems() {
			out = append(out, strings.ReplaceAll(p.String(), dir+"/", ""))
		}
	}
	slices.Sort(out)
	return out
}

func (m *memory) service(name string) *source.Service {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, _ := m.objects[source.Key{Kind: source.KindService, Namespace: "default", Name: name}].(*source.Service)
	return s
}

// read reads the changed files and passes the result to the sink, as Run does.
func (s *Source) read(sink source.Sink) {
	r := &readResult{}
	s.scan(r)
	s.finish(sink, r)
}

// manifestDir is a manifest directory that tests read on demand.
type manifestDir struct {
	t    testing.TB
	dir  string
	sink *memory
	src  *Source
	log  bytes.Buffer
}

func newManifestDir(t testing.TB) *manifestDir {
	f := &manifestDir{t: t, dir: t.TempDir(), sink: newMemory()}
	f.src = New(Options{Paths: []string{f.dir}, NodeName: "edge", Logger: slog.New(slog.NewTextHandler(&f.log, nil))})
	return f
}

func (f *manifestDir) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *manifestDir) read() { f.src.read(f.sink) }

func (f *manifestDir) expect(names string, problems ...string) {
	f.t.Helper()
	f.read()
	if got := f.sink.names(); got != names {
		f.t.Errorf("objects\n got %s\nwant %s", got, names)
	}
	f.wantProblems(problems...)
}

// wantProblems fails the test unless there are as many problems as strings in want, and each problem starts with the
// string at the same index in want.
func (f *manifestDir) wantProblems(want ...string) {
	f.t.Helper()
	got := f.sink.problems(f.dir)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		f.t.Errorf("problems\n got %q\nwant %q", got, want)
	}
}

const web = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.10
  ports: [{port: 80}]
`

func called(name string) string { return strings.ReplaceAll(web, "name: web", "name: "+name) }

const slice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.1.0.1]}]
`

func TestDefaultsMatchAPIServer(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", web+"---\n"+slice)
	f.expect("EndpointSlice default/web-1, Service default/web")
	svc := f.sink.service("web")
	if len(svc.Ports) != 1 || svc.Ports[0] != (source.ServicePort{Protocol: plan.TCP, Port: 80}) ||
		!svc.Created.IsZero() {
		t.Errorf("Service %+v", svc)
	}
	es := f.sink.objects[source.Key{
		Kind: source.KindEndpointSlice, Namespace: "default",
		Name: "web-1",
	}].(*source.EndpointSlice)
	if len(es.Ports) != 1 || es.Ports[0] != (source.SlicePort{Protocol: plan.TCP, Port: 8080}) ||
		!es.Endpoints[0].Ready {
		t.Errorf("EndpointSlice %+v", es)
	}
}

func TestFileFormats(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", "\xef\xbb\xbf# a comment\n---\n---\r\n"+called("a")+"---   # next\n"+called("b")+"...\n")
	f.write("b.yml", "apiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(called("c"), "\n", "\n  ")+"\n")
	f.write("c.json", `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"d"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}]}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge"}} {
"apiVersion":"v1","kind":"Node","metadata":{"name":"other"}}`)
	f.write("d.yaml", "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: k}, spec: {cidrs: [10.96.0.0/16]}}\n")
	f.write("notes.txt", "not a manifest")
	f.write(".hidden.yaml", "nonsense: [")
	if err := os.Mkdir(filepath.Join(f.dir, "sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.expect("Node edge, Service default/a, Service default/b, Service default/c, Service default/d, ServiceCIDR k",
		"sub.yaml: not a regular file")
}

func TestIgnoredObjectsCauseNoFault(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", strings.ReplaceAll(web, "10.96.0.10", "None")+"---\n"+
		"apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {type: ExternalName, externalName: example.com}\n---\n"+
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {nonsense: true}\n---\n"+
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: e}\n---\n"+
		"apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: k}\n")
	f.expect("")
	if n := strings.Count(f.log.String(), "kind=Deployment"); n != 1 {
		t.Errorf("the ignored kind is mentioned %d times", n)
	}
}

// In each case, Edgeway must serve the valid documents before and after a document with an error.
func TestBadDocumentDoesNotAffectOthers(t *testing.T) {
	for name, c := range map[string]struct{ text, problem string }{
		"syntax":         {"a: [", "a.yaml:8: "},
		"tab":            {"a:\n\tb: c\n", "a.yaml:9: "},
		"no object":      {"just text", "a.yaml:8: "},
		"no kind":        {"apiVersion: v1", "a.yaml:8: kind: "},
		"no apiVersion":  {"kind: Service", "a.yaml:8: apiVersion: "},
		"misspelt field": {strings.Replace(web, "ports:", "prots:", 1), "a.yaml:13: spec.prots: "},
		"wrong case":     {strings.Replace(web, "clusterIP:", "clusterIp:", 1), "a.yaml:12: spec.clusterIp: "},
		"repeated field": {web + "  clusterIP: 10.96.0.11\n", "a.yaml:14: "},
		"wrong type":     {strings.Replace(web, "port: 80", "port: http", 1), "a.yaml:13: spec.ports.port: "},
		"port 65536 * n": {strings.Replace(web, "port: 80", "port: 4294967376", 1), "a.yaml:13: spec.ports.port: "},
		"no name":        {strings.Replace(web, "name: web", "labels: {}", 1), "a.yaml:10: metadata.name: "},
		"bad name":       {strings.Replace(web, "name: web", "name: Web", 1), "a.yaml:10: metadata.name: "},
		"no clusterIP":   {strings.Replace(web, "  clusterIP: 10.96.0.10\n", "", 1), "a.yaml:11: spec.clusterIP: "},
		"old slice":      {strings.Replace(slice, "k8s.io/v1", "k8s.io/v1beta1", 1), "a.yaml:8: apiVersion: "},
		"bad item": {
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {nam: x}}",
			"a.yaml:11: items[0].metadata.nam: ",
		},
		"port 0": {
			strings.Replace(called("bad"), "port: 80", "port: 0", 1),
			"a.yaml:13: Service default/bad: spec.ports[0].port: ",
		},
		"no Service": {
			strings.Replace(slice, "kubernetes.io/service-name", "x", 1),
			"a.yaml:10: EndpointSlice default/web-1: metadata.labels[kubernetes.io/service-name]: ",
		},
		"no nodePort": {
			strings.Replace(called("bad"), "spec:", "spec:\n  type: NodePort", 1),
			"a.yaml:14: Service default/bad: spec.ports[0].nodePort: ",
		},
		"item of a list": {
			"apiVersion: v1\nkind: List\nitems:\n- " +
				strings.ReplaceAll(strings.Replace(called("bad"), "port: 80", "port: 0", 1), "\n", "\n  "),
			"a.yaml:16: Service default/bad: spec.ports[0].port: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newManifestDir(t)
			f.write("a.yaml", called("first")+"---\n"+c.text+"\n---\n"+called("last"))
			f.read()
			if f.sink.service("first") == nil || f.sink.service("last") == nil {
				t.Errorf("the good documents do not serve: %s", f.sink.names())
			}
			f.wantProblems(c.problem)
		})
	}
}

func TestListItemLineNumbers(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.10, ports: [{port: 0}]}}
- {apiVersion: v1, kind: Service, metadata: {name: Web}, spec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}}
`)
	f.expect("Service default/web", "a.yaml:4: Service default/web: spec.ports[0].port: ",
		"a.yaml:5: items[1].metadata.name: ")
}

func TestUnusableDocumentPreventsRemoval(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", called("a")+"---\n"+called("b")+"---\n"+called("c"))
	f.write("z.yaml", called("z"))
	f.expect("Service default/a, Service default/b, Service default/c, Service default/z")

	// The file a.yaml is half-written: the Service b is truncated, c is missing, and a has a new port.
	half := strings.Replace(called("a"), "port: 80", "port: 81", 1) + "---\n" + called("b")
	f.write("a.yaml", half[:len(half)-4])
	f.expect("Service default/a, Service default/b, Service default/c, Service default/z",
		"a.yaml:13: cannot be parsed: ")
	if got := f.sink.service("a").Ports[0].Port; got != 81 {
		t.Errorf("the good document of the bad file is not served: port %d", got)
	}
	// An invalid version of the file, and then an unreadable version, must not change the served objects.
	f.write("a.yaml", "[")
	f.read()
	if err := os.Remove(filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(f.dir, "a.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.read()
	if got := f.sink.names(); got != "Service default/a, Service default/b, Service default/c, Service default/z" {
		t.Errorf("objects %s", got)
	}
	if err := os.Remove(filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	f.write("a.yaml", called("b"))
	f.expect("Service default/b, Service default/z")
	if err := os.Remove(filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	f.expect("Service default/z")
}

func TestMissingFolderKeepsObjects(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", web)
	f.read()
	if err := os.Rename(f.dir, f.dir+"-away"); err != nil {
		t.Fatal(err)
	}
	f.read()
	if got := f.sink.names(); got != "Service default/web" {
		t.Errorf("objects %q", got)
	}
	if st := f.src.Status(); !strings.Contains(st.Fault.Message, "no such file or directory") {
		t.Errorf("status %+v", st)
	}
	if err := os.Rename(f.dir+"-away", f.dir); err != nil {
		t.Fatal(err)
	}
	f.read()
	if st := f.src.Status(); st.Fault.Message != "" {
		t.Errorf("status %+v", st)
	}
}

func TestFirstOfDuplicateObjectsWins(t *testing.T) {
	f := newManifestDir(t)
	f.write("b.yaml", strings.Replace(web, "port: 80", "port: 82", 1))
	f.write("a.yaml", called("x")+"---\n"+web)
	f.expect("Service default/web, Service default/x", "b.yaml:1: Service default/web is already in a.yaml:7")
	if got := f.sink.service("web").Ports[0].Port; got != 80 {
		t.Errorf("port %d", got)
	}
	if err := os.Remove(filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	f.expect("Service default/web")
	if got := f.sink.service("web").Ports[0].Port; got != 82 {
		t.Errorf("port %d", got)
	}
}

func TestOnlyChangesArePassedToSink(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", called("a")+"---\n"+called("b"))
	f.write("b.yaml", "nonsense: [")
	f.read()
	f.sink.upserts, f.sink.deletes = 0, 0
	f.read()
	f.write("a.yaml", "# moved\n---\n"+called("b")+"---\n# a comment\n"+called("a")+"---\n"+called("c"))
	f.read()
	if f.sink.upserts != 1 || f.sink.deletes != 0 {
		t.Errorf("%d upserts, %d deletes; want one upsert", f.sink.upserts, f.sink.deletes)
	}
}

func TestExamplesHaveNoFaults(t *testing.T) {
	m := newMemory()
	src := New(Options{Paths: []string{"../../../etc/edgeway/examples"}, Logger: slog.New(slog.DiscardHandler)})
	src.read(m)
	if m.names() == "" || len(m.problems("")) > 0 || src.Status().Fault.Message != "" {
		t.Errorf("objects %s\nproblems %q\nstatus %+v", m.names(), m.problems(""), src.Status())
	}
}
