package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// measure returns the number of MiB that f allocates, which is an upper bound on the memory that f uses.
func measure(f func()) (mib uint64, took time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20, took
}

// For each malicious file, Edgeway reports a fault and still serves the objects of the valid file. Reading a malicious
// file takes little memory and little time.
func TestHostileFileDoesNotAffectOthers(t *testing.T) {
	for name, c := range map[string]struct {
		make    func(path string) error
		problem string
	}{
		"aliases of aliases": {content(lol()), "after alias expansion"},
		"a list as a key":    {content("a: b\n? [c, d]\n: x\n"), "a.yaml:1: cannot be parsed: invalid map key: "},
		"sparse": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 3<<30))
		}, "larger than 16 MiB: split it"},
		"pipe":   {func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		"device": {func(path string) error { return os.Symlink("/dev/zero", path) }, "not a regular file"},
		"/proc":  {func(path string) error { return os.Symlink("/proc/kmsg", path) }, "a.yaml: resource temporarily unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newManifestDir(t)
			if err := c.make(filepath.Join(f.dir, "a.yaml")); err != nil {
				t.Fatal(err)
			}
			f.write("z.yaml", web)
			used, _ := measure(f.read)
			if used > 300 {
				t.Errorf("it took %d MiB", used)
			}
			if f.sink.service("web") == nil {
				t.Error("the file beside it is not served")
			}
			if got := f.sink.problems(f.dir); len(got) != 1 || !strings.Contains(got[0], c.problem) {
				t.Errorf("problems %q, want %q", got, c.problem)
			}
		})
	}
}

func content(text string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
}

func lol() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9))
	}
	return text
}

func TestYAMLAliases(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", strings.Replace(web, "metadata: {name: web}",
		"metadata: {name: &n web, labels: {app: *n, 1: x, 1.5: x, true: x}}", 1))
	f.expect("Service default/web")
}

func TestFaultsAreBounded(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", strings.Repeat("a: [\n---\n", 20_000)+web)
	f.write("b.yaml", "apiVersion: v1\nkind: List\nitems:\n"+strings.Repeat("- {}\n", 1000))
	f.write("c.yaml", strings.Repeat("---\n"+called("c"), 30))
	_, took := measure(f.read)
	// The machine may be busy, so the time limit depends on how long a similar file without faults takes to read.
	good := newManifestDir(t)
	good.write("a.yaml", strings.Repeat("a: []\nkind: x\napiVersion: x\n---\n", 20_000)+web)
	_, usual := measure(good.read)
	if took > 10*usual+time.Second {
		t.Errorf("it took %s; without faults %s", took, usual)
	}
	got := f.sink.problems(f.dir)
	for file, more := range map[string]int{"a.yaml": 19_980, "b.yaml": 980, "c.yaml": 9} {
		want, told := fmt.Sprintf("%s: the file has %d more faults", file, more), 0
		for _, p := range got {
			if strings.HasPrefix(p, file+":") && p != want {
				told++
			}
		}
		if told != maxFaults || !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("%s: %d faults are told, want %d and %q", file, told, maxFaults, want)
		}
	}
	if f.sink.service("web") == nil || f.sink.service("c") == nil {
		t.Error("the good documents are not served")
	}
}

func TestTotalFileSizeIsBounded(t *testing.T) {
	f := newManifestDir(t)
	for i := range 9 {
		f.write(fmt.Sprintf("%d.json", i), fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x%d"},"spec":{"clusterIP":"10.96.0.10","ports":[{"port":80}]}}`, i)+
			strings.Repeat("\n", 15<<20))
	}
	f.read()
	if got := f.sink.problems(f.dir); len(got) != 1 ||
		!strings.Contains(got[0], "8.json: the manifests exceed 128 MiB") {
		t.Errorf("problems %q", got)
	}
	if f.sink.service("x7") == nil || f.sink.service("x8") != nil {
		t.Errorf("objects %s", f.sink.names())
	}
}

func TestIgnoredKindsLogIsBounded(t *testing.T) {
	f := newManifestDir(t)
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\n{apiVersion: apps/v1, kind: K%d}\n", i)
	}
	f.write("a.yaml", text.String())
	f.expect("")
	if n := strings.Count(f.log.String(), "\n"); n != maxIgnored {
		t.Errorf("%d lines", n)
	}
}
