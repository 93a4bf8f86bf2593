package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cost gives what f allocates in MiB, no less than what it holds at any time, and the time that it takes.
func cost(f func()) (mib uint64, took time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20, took
}

// peak gives by how many MiB the heap grew while f ran.
func peak(f func()) uint64 {
	mapped := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapSys - m.HeapReleased
	}
	debug.FreeOSMemory()
	before := mapped()
	f()
	return (max(mapped(), before) - before) >> 20
}

// bomb is a document whose aliases stand for n times a text of this size.
func bomb(size, n int) string {
	return "apiVersion: v1\nkind: Service\nmetadata:\n  name: x\n  annotations:\n    a: &a " + strings.Repeat("x", size) + "\n" +
		"x: [" + strings.Repeat("*a,", n) + "]\n"
}

// Each file costs little, is named, and the one beside it serves.
func TestHostileFilesHarmNobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		make    func(path string) error
		problem string
	}{
		"aliases of a long text": {content(bomb(1<<20, 1000)), "with its aliases replaced it is more than 16 times as large"},
		"aliases of a list": {
			content("a: &a [" + strings.Repeat("x,", 1000) + "]\nb: [" + strings.Repeat("*a,", 50) + "]\n"),
			"with its aliases replaced it is more than 16 times as large",
		},
		"aliases of aliases": {content(lol()), "document contains excessive aliasing"},
		"aliases in a key": {
			content("a: &a " + strings.Repeat("x", 1<<20) + "\n? [" + strings.Repeat("*a,", 1000) + "]\n: x\n"),
			"a key is neither a word nor a number",
		},
		"the same long key": {
			content("? &a " + strings.Repeat("x", 1<<20) + "\n: x\n" + strings.Repeat("*a : x\n", 1000)),
			"a key has more than 512 characters",
		},
		"long tags": {
			content("%TAG !e! " + strings.Repeat("x", 1<<20) + "\r---\r[" + strings.Repeat("!e!a a,", 1000) + "]\n"),
			"it has a %TAG directive",
		},
		"sparse": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 3<<30))
		}, "it has more than 16 MiB: split it"},
		"pipe":   {func(path string) error { return unix.Mkfifo(path, 0o600) }, "it is not a regular file"},
		"device": {func(path string) error { return os.Symlink("/dev/zero", path) }, "it is not a regular file"},
		"/proc":  {func(path string) error { return os.Symlink("/proc/kmsg", path) }, "the file cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			if err := c.make(filepath.Join(f.dir, "a.yaml")); err != nil {
				t.Fatal(err)
			}
			f.write("z.yaml", web)
			used, _ := cost(f.read)
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

// The library takes up to 300 bytes for a value of one character, and the Services' own types take more.
func TestValuesAreBounded(t *testing.T) {
	const (
		slice   = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {name: x, labels: {kubernetes.io/service-name: x}}\n"
		service = "apiVersion: v1\nkind: Service\nspec: {type: NodePort, clusterIP: 10.96.0.1, ports: ["
	)
	same := func(item string) func(int) string { return func(int) string { return item } }
	key := func(i int) string { return "k" + strconv.FormatInt(int64(i), 36) }
	for name, c := range map[string]struct {
		head string
		item func(i int) string
		tail string
		each int // what an item counts for
		file string
	}{
		"words":             {"[", same("a,"), "]", 1, "a.yaml"},
		"words in JSON":     {"[", same("1,"), "1]", 1, "a.json"},
		"the same key":      {"{", same("a,"), "}", 1, "a.yaml"},
		"keys":              {"{", func(i int) string { return key(i) + "," }, "}", 1, "a.yaml"},
		"objects":           {"[", same("a: ,"), "]", 2, "a.yaml"},
		"faults":            {"", same("x\n---\n"), "", documentValues + 1, "a.yaml"},
		"documents of JSON": {"", same("1 "), "", documentValues, "a.json"},
		"endpoints":         {slice + "endpoints: [", same("~,"), "]\n", 1, "a.yaml"},
		"ports":             {service, same("~,"), "]}\nmetadata: {name: x}\n", 1, "a.yaml"},
		"annotations":       {service + "]}\nmetadata: {name: x, annotations: {", func(i int) string { return key(i) + ": x," }, "}}\n", 2, "a.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			text := func(limit func(text string, items int) bool) string {
				var b strings.Builder
				b.WriteString(c.head)
				for i := 0; ; i++ {
					if item := c.item(i); limit(item, i) {
						b.WriteString(item)
						continue
					}
					return b.String() + c.tail
				}
			}
			read := func(text string) (string, uint64) {
				f := newFolder(t)
				f.write(c.file, text)
				f.write("z.yaml", web)
				took := peak(f.read)
				if f.sink.service("web") == nil {
					t.Error("the file beside it is not served")
				}
				return strings.Join(f.sink.problems(f.dir), "\n"), took
			}
			size := 0
			problems, took := read(text(func(item string, _ int) bool { size += len(item); return size < maxFile-1000 }))
			if want := "Document " + c.file + ": the file cannot be read: " + errValues.Error(); problems != want || took > 256 {
				t.Errorf("16 MiB took %d MiB: %.500s, want %s", took, problems, want)
			}
			problems, took = read(text(func(_ string, i int) bool { return i*c.each < maxValues-100 }))
			t.Logf("%d values took %d MiB", maxValues, took)
			if strings.Contains(problems, errValues.Error()) || took > 256 {
				t.Errorf("%d values took %d MiB: %.500s", maxValues, took, problems)
			}
		})
	}
}

func TestCountValues(t *testing.T) {
	for text, want := range map[string]int{
		"a: b\nc:\n- d\n- e\n": 4, `{"a":"b","c":[1,2]}`: 6, "{a,b}": 2, "[a: b]": 2, "- - ? a": 3, "---\na: 'it''s'": 2,
		"fd00:10:96::1": 0, "2026-01-01T00:00:00Z": 0, "a-b-c": 0, "http://a:80/": 0, "- ::1": 2,
	} {
		if got := countValues([]byte(text)); got != want {
			t.Errorf("%q has %d, want %d", text, got, want)
		}
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

func TestAliasesAreUsable(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", strings.Replace(web, "metadata: {name: web}", "metadata: {name: &n web, labels: {app: *n, 1: x, 1.5: x, true: x}}", 1))
	f.expect("Service default/web")
}

func TestFaultsAreBounded(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", strings.Repeat("a: [\n---\n", 20_000)+web)
	f.write("b.yaml", "apiVersion: v1\nkind: List\nitems:\n"+strings.Repeat("- {}\n", 1000))
	f.write("c.yaml", strings.Repeat("---\n"+called("c"), 30))
	_, took := cost(f.read)
	// The same text without faults; the machine may be busy.
	good := newFolder(t)
	good.write("a.yaml", strings.Repeat("a: []\nkind: x\napiVersion: x\n---\n", 20_000)+web)
	_, usual := cost(good.read)
	if took > 10*usual+time.Second {
		t.Errorf("it took %s; without faults %s", took, usual)
	}
	got := f.sink.problems(f.dir)
	for file, more := range map[string]int{"a.yaml": 19_980, "b.yaml": 980, "c.yaml": 9} {
		want, told := fmt.Sprintf("Document %s: … and %d more faults in this file", file, more), 0
		for _, p := range got {
			if strings.HasPrefix(p, "Document "+file+"#") {
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

func TestAllFilesTogetherAreBounded(t *testing.T) {
	f := newFolder(t)
	for i := range 9 {
		f.write(fmt.Sprintf("%d.json", i), fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x%d"},"spec":{"clusterIP":"10.96.0.10","ports":[{"port":80}]}}`, i)+
			strings.Repeat("\n", 15<<20))
	}
	f.read()
	if got := f.sink.problems(f.dir); len(got) != 1 || !strings.Contains(got[0], "Document 8.json: the file cannot be read: all manifests together have more than 128 MiB") {
		t.Errorf("problems %q", got)
	}
	if f.sink.service("x7") == nil || f.sink.service("x8") != nil {
		t.Errorf("objects %s", f.sink.names())
	}
}

func TestTheLogNamesSomeIgnoredKinds(t *testing.T) {
	f := newFolder(t)
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: K%d}\n", i)
	}
	f.write("a.yaml", text.String())
	f.expect("")
	if n := strings.Count(f.log.String(), "\n"); n != maxIgnored {
		t.Errorf("%d lines", n)
	}
}
