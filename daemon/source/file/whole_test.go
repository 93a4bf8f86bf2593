package file

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/source"
)

func (f *manifestDir) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *manifestDir) path(name string) string { return filepath.Join(f.dir, name) }

// restart starts a new source with the objects from the last-known state, which contains no Documents.
func (f *manifestDir) restart() {
	var before []source.Object
	for _, o := range f.sink.objects {
		switch o := o.(type) {
		case *source.Document:
		case *source.EndpointSlice:
			saved := *o
			saved.Manifest = false
			before = append(before, &saved)
		case *source.Service:
			saved := *o
			saved.Manifest = false
			before = append(before, &saved)
		default:
			before = append(before, o)
		}
	}
	f.sink = newMemory()
	f.src = New(Options{
		Paths: f.src.options.Paths, NodeName: "edge",
		KnownObjects: func() ([]source.Object, bool) { return before, true },
		Logger:       slog.New(slog.NewTextHandler(&f.log, nil)),
	})
	f.src.passKnownObjects(f.sink)
}

// readAsNobody reads the files as an unprivileged user, because the superuser can read all files.
func (f *manifestDir) readAsNobody() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // the thread ends with the goroutine
			_, _ = unix.SetfsuidRetUid(65534)
		}
		f.read()
	}()
	<-done
}

// removesNothing is part of the fault message that a source reports after an incomplete read.
const removesNothing = "; Edgeway removes no Service until the faults are corrected"

// accident is a kind of damage to manifests after which Edgeway must not remove any Service.
type accident struct {
	do       func(f *manifestDir)
	asNobody bool   // whether to read as the user nobody, who cannot read all files
	says     string // the expected fault, without the directory's name
}

// Before each accident, a.yaml holds the Services a and b, and z.yaml holds the Service z.
func accidents() map[string]accident {
	replace := func(name, text string) func(f *manifestDir) { return func(f *manifestDir) { f.write(name, text) } }
	link := func(to string) func(f *manifestDir) {
		return func(f *manifestDir) {
			f.must(os.Remove(f.path("a.yaml")))
			f.must(os.Symlink(to, f.path("a.yaml")))
		}
	}
	return map[string]accident{
		"folder renamed": {func(f *manifestDir) { f.must(os.Rename(f.dir, f.dir+"-away")) }, false, "FOLDER: no such file or directory"},
		"file system not mounted": {func(f *manifestDir) {
			f.must(os.Rename(f.dir, f.dir+"-away"))
			f.must(os.Mkdir(f.dir, 0o700))
		}, false, "FOLDER: no manifest is left"},
		"folder that others own": {func(f *manifestDir) { f.must(os.Chmod(f.dir, 0)) }, true, "FOLDER: permission denied"},
		"file that others own": {func(f *manifestDir) {
			f.must(os.Chmod(filepath.Dir(f.dir), 0o755))
			f.must(os.Chmod(f.dir, 0o755))
			f.must(os.Chmod(f.path("z.yaml"), 0o644))
			f.must(os.Chmod(f.path("a.yaml"), 0))
		}, true, "FOLDER/a.yaml: permission denied"},
		"disk that fails":        {link("/proc/self/mem"), false, "FOLDER/a.yaml: input/output error"},
		"file of another folder": {link("/nowhere/a.yaml"), false, "FOLDER/a.yaml: the file was deleted, or is a link"},
		"file emptied":           {replace("a.yaml", ""), false, "FOLDER/a.yaml: the file is empty"},
		"file of blanks":         {replace("a.yaml", "\n \n\n"), false, "FOLDER/a.yaml: the file is empty"},
		"loss of power":          {replace("a.yaml", strings.Repeat("\x00", 100)), false, "FOLDER/a.yaml:1: cannot be parsed"},
		"document broken": {
			replace("a.yaml", called("a")+"---\n"+called("b")+"  ports: ]\n"), false,
			"FOLDER/a.yaml:13: cannot be parsed: did not find expected node content" + removesNothing,
		},
		"version that is not read":   {replace("a.yaml", called("a")+"---\n"+strings.Replace(called("b"), "apiVersion: v1", "apiVersion: v2", 1)), false, "FOLDER/a.yaml:8: apiVersion: \"v2\" is not supported"},
		"moved and broken":           {func(f *manifestDir) { f.must(os.Remove(f.path("a.yaml"))); f.write("b.yaml", "a: [") }, false, "FOLDER/b.yaml:1: cannot be parsed"},
		"removed, another is broken": {func(f *manifestDir) { f.must(os.Remove(f.path("a.yaml"))); f.write("z.yaml", "a: [") }, false, "FOLDER/z.yaml:1: cannot be parsed"},
	}
}

func TestAccidentsDoNotRemoveServices(t *testing.T) {
	const all = "Service default/a, Service default/b, Service default/z"
	for name, c := range accidents() {
		for _, down := range []bool{false, true} {
			when := map[bool]string{false: ", while it runs", true: ", before a start"}[down]
			t.Run(name+when, func(t *testing.T) {
				f := newManifestDir(t)
				f.write("a.yaml", called("a")+"---\n"+called("b"))
				f.write("z.yaml", called("z"))
				f.expect(all)
				read := f.read
				if c.asNobody {
					read = f.readAsNobody
				}
				c.do(f)
				for range 2 { // repeat after a restart
					if down {
						f.restart()
					}
					read()
					if got := f.sink.names(); got != all {
						t.Errorf("objects %s", got)
					}
					st := f.src.Status()
					if fault := strings.ReplaceAll(st.Fault.Message, f.dir, "FOLDER"); !st.Partial ||
						st.Fault.Fix == "" || !strings.HasPrefix(fault, c.says) ||
						!strings.Contains(fault, removesNothing+
							"; Edgeway keeps the last version of Service default/") {
						t.Errorf("status %+v, want %q", st, c.says)
					}
				}

				// Once all files are readable, Edgeway removes the objects that no document contains.
				_ = os.Chmod(f.dir, 0o700) // fails if the directory does not exist
				f.must(os.RemoveAll(f.dir))
				f.must(os.Mkdir(f.dir, 0o700))
				f.write("a.yaml", called("a"))
				f.expect("Service default/a")
				if st := f.src.Status(); st.Fault.Message != "" || st.Partial || !st.Synced || st.LastContact.IsZero() {
					t.Errorf("status %+v", st)
				}
			})
		}
	}
}

func TestDeliberateRemoval(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(f *manifestDir)
		left string
	}{
		"a file of several":     {func(f *manifestDir) { f.must(os.Remove(f.path("a.yaml"))) }, "Service default/z"},
		"a document":            {func(f *manifestDir) { f.write("a.yaml", called("b")) }, "Service default/b, Service default/z"},
		"all of a file":         {func(f *manifestDir) { f.write("a.yaml", "# none\n") }, "Service default/z"},
		"all of a file, by ---": {func(f *manifestDir) { f.write("a.yaml", "---\n") }, "Service default/z"},
		"all of a JSON file": {func(f *manifestDir) {
			f.must(os.Remove(f.path("a.yaml")))
			f.write("a.json", "null")
		}, "Service default/z"},
		"all of the folder": {func(f *manifestDir) {
			f.must(os.Remove(f.path("a.yaml")))
			f.must(os.Remove(f.path("z.yaml")))
			f.write("none.yaml", "# no Services at present\n")
		}, ""},
	} {
		for _, down := range []bool{false, true} {
			f := newManifestDir(t)
			f.write("a.yaml", called("a")+"---\n"+called("b"))
			f.write("z.yaml", called("z"))
			f.read()
			if down {
				f.restart()
			}
			c.do(f)
			f.read()
			if got, st := f.sink.names(), f.src.Status(); got != c.left || st.Fault.Message != "" {
				t.Errorf("%s (down: %v): objects %q, want %q; status %+v", name, down, got, c.left, st)
			}
		}
	}
}

// An EndpointSlice that no longer names a Service is invalid, so Edgeway keeps the previous version.
func TestFaultOnlyObjectKeepsPreviousVersion(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", web+"---\n"+slice)
	f.read()
	f.write("a.yaml", web+"---\n"+strings.Replace(slice, "kubernetes.io/service-name", "x", 1))
	f.expect("EndpointSlice default/web-1, Service default/web",
		"a.yaml:10: EndpointSlice default/web-1: metadata.labels[kubernetes.io/service-name]: ")
	key := source.Key{Kind: source.KindEndpointSlice, Namespace: "default", Name: "web-1"}
	if got := f.sink.objects[key].(*source.EndpointSlice); got.Service != "web" || !got.Manifest {
		t.Errorf("EndpointSlice %+v", got)
	}
	f.restart()
	f.read()
	if got := f.sink.objects[key].(*source.EndpointSlice); got.Service != "web" || !got.Manifest {
		t.Errorf("after a restart: EndpointSlice %+v", got)
	}
}

// If two files contain the same Service and the first file becomes unreadable, Edgeway does not use the version in the
// second file.
func TestUnreadableFirstDuplicateStillWins(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", web)
	f.write("b.yaml", strings.Replace(web, "port: 80", "port: 82", 1))
	f.read()
	f.must(os.Remove(f.path("a.yaml")))
	f.must(os.Symlink("/nowhere", f.path("a.yaml")))
	f.read()
	if got := f.sink.service("web").Ports[0].Port; got != 80 {
		t.Errorf("port %d", got)
	}
}

func TestSyncedOnlyAfterValidReading(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(f *manifestDir)
		paths  []string // paths in the directory, or nil for the directory itself
		synced bool
	}{
		"a good file":                  {func(f *manifestDir) { f.write("a.yaml", web) }, nil, true},
		"an empty folder":              {func(*manifestDir) {}, nil, true},
		"a bad file beside a good one": {func(f *manifestDir) { f.write("a.yaml", "a: ["); f.write("b.yaml", web) }, nil, true},
		"a folder that is not there":   {func(*manifestDir) {}, []string{"no"}, false},
		"one of two paths":             {func(f *manifestDir) { f.write("a.yaml", web) }, []string{"a.yaml", "no"}, false},
		"a path that cannot be read":   {func(f *manifestDir) { f.must(os.Symlink("/proc/self/mem", f.path("m.yaml"))) }, []string{"m.yaml"}, false},
		"that, and a good file": {func(f *manifestDir) {
			f.must(os.Symlink("/proc/self/mem", f.path("m.yaml")))
			f.write("a.yaml", web)
		}, []string{"m.yaml", "a.yaml"}, false},
		"nothing but a bad file": {func(f *manifestDir) { f.write("a.yaml", "a: [") }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newManifestDir(t)
			c.do(f)
			if c.paths != nil {
				f.src.options.Paths = nil
				for _, p := range c.paths {
					f.src.options.Paths = append(f.src.options.Paths, f.path(p))
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- f.src.Run(ctx, f.sink) }()
			eventually(t, "the first reading", 30*time.Second, func() bool {
				st := f.src.Status()
				return st.Synced || st.Fault.Message != ""
			})
			cancel()
			f.must(<-done)
			if st := f.src.Status(); st.Synced != c.synced || (f.sink.synced == 1) != c.synced {
				t.Errorf("synced %v and said so %d times; status %+v", c.synced, f.sink.synced, st)
			}
		})
	}
}

func TestSyncedWithLastKnownState(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", web)
	f.read()
	f.restart()
	f.must(os.Rename(f.dir, f.dir+"-away"))
	known := f.src.options.KnownObjects
	f.src = New(Options{Paths: f.src.options.Paths, KnownObjects: known, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.src.Run(ctx, f.sink) }()
	eventually(t, "Synced", 30*time.Second, func() bool {
		f.sink.mu.Lock()
		defer f.sink.mu.Unlock()
		return f.sink.synced == 1
	})
	if st := f.src.Status(); st.Synced || st.Fault.Message == "" || f.sink.names() != "Service default/web" {
		t.Errorf("status %+v, objects %s", st, f.sink.names())
	}
	f.must(os.Rename(f.dir+"-away", f.dir))
	eventually(t, "the folder is read again", 2*faultyPollPeriod, func() bool {
		st := f.src.Status()
		return st.Synced && st.Fault.Message == ""
	})
	cancel()
	f.must(<-done)
}

// blockOpen blocks every attempt to open the directory until the test calls release. A network file system whose server
// is down blocks in the same way.
func (f *manifestDir) blockOpen() (release func()) {
	f.t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err == nil {
		err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_ONDIR, unix.AT_FDCWD, f.dir)
	}
	if err != nil {
		f.t.Skipf("fanotify with permission events is needed, CONFIG_FANOTIFY_ACCESS_PERMISSIONS and CAP_SYS_ADMIN: %v",
			err)
	}
	release = sync.OnceFunc(func() { _ = unix.Close(fd) }) // unblocks all waiting callers
	f.t.Cleanup(release)
	return release
}

// While a read hangs, the source reports a fault and serves the previous run's objects. A hanging read does not prevent
// the daemon from stopping.
func TestHungFileSystem(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", web)
	f.read()
	f.restart()
	f.src.slowReadTime = 100 * time.Millisecond
	release := f.blockOpen()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.src.Run(ctx, f.sink) }()
	slow := func() bool {
		st := f.src.Status()
		return st.Partial && strings.Contains(st.Fault.Message, f.dir+" has made no progress for 100ms")
	}
	eventually(t, "the reading is told to be slow", 30*time.Second, slow)
	eventually(t, "Synced", 30*time.Second, func() bool {
		f.sink.mu.Lock()
		defer f.sink.mu.Unlock()
		return f.sink.synced == 1
	})
	if st := f.src.Status(); st.Synced || f.sink.names() != "Service default/web" {
		t.Errorf("status %+v, objects %s", st, f.sink.names())
	}
	release()
	eventually(t, "the reading ends", 30*time.Second, func() bool {
		st := f.src.Status()
		return st.Synced && st.Fault.Message == ""
	})
	f.blockOpen()
	f.write("b.yaml", called("b"))
	eventually(t, "the next reading is told to be slow", 30*time.Second, slow)
	cancel()
	select {
	case err := <-done:
		f.must(err)
	case <-time.After(30 * time.Second):
		t.Error("Run does not end")
	}
	if f.sink.synced != 1 {
		t.Errorf("synced %d times", f.sink.synced)
	}
}

// A read that takes minutes because there are many files is not a fault as long as it makes progress. During a long
// read, Edgeway serves the previous run's objects.
func TestSlowReadingIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newMemory()
		s := New(Options{Paths: []string{"/manifests"}, Logger: slog.New(slog.DiscardHandler)})
		s.known = true
		r := &readResult{}
		r.noteProgress()
		done := make(chan struct{})
		go func() {
			for range 10 {
				time.Sleep(slowReadTime * 9 / 10)
				r.noteProgress()
			}
			synctest.Wait()
			if st := s.Status(); st.Fault.Message != "" || sink.synced != 1 {
				t.Errorf("while files are read: %+v, synced %d times", st, sink.synced)
			}
			time.Sleep(slowReadTime + time.Second)
			if st := s.Status(); !strings.Contains(st.Fault.Message, "has made no progress for 30s") {
				t.Errorf("after 30 s without a file: %+v", st)
			}
			close(done)
		}()
		if !s.await(t.Context(), sink, r, done) {
			t.Error("it is not waited for")
		}
	})
}
