package vm

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMirrorIsThatOfTheHost(t *testing.T) {
	for _, c := range []struct{ name, targets, want string }{
		{"Debian's own", "Debian|main|bookworm|http://mirror.example/debian/\n", "http://mirror.example/debian/"},
		{
			"others and security first", "Docker|main|bookworm|http://docker.example/\nDebian|main|bookworm-security|http://security.example/\n" +
				"Debian|contrib|trixie|http://contrib.example/\nDebian|main|trixie|http://mirror.example/debian/\n",
			"http://mirror.example/debian/",
		},
		{"no lists yet", "|main|bookworm|http://mirror.example/debian/\n", ""},
		{"another distribution", "Ubuntu|main|noble|http://mirror.example/ubuntu/\n", ""},
		{"nothing", "", ""},
	} {
		if got := firstDebianArchive(c.targets); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSuiteNames(t *testing.T) {
	for name, want := range map[string]Suite{
		"bookworm": Bookworm, "trixie": Trixie, "newest": Newest,
		"testing": Newest,
	} {
		if got, err := ParseSuite(name); got != want || err != nil {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, want)
		}
	}
	if s, err := ParseSuite("woody"); err == nil {
		t.Errorf("woody: got %s", s)
	}
}

// TestBrokenImagesAreNoticed damages the image of a small system as a full disk or a killed build would.
func TestBrokenImagesAreNoticed(t *testing.T) {
	good := func(t *testing.T) string {
		dir := t.TempDir()
		if err := convert(system(t, "./boot/vmlinuz-1"), dir); err != nil {
			t.Fatal(err)
		}
		if err := seal(dir); err != nil {
			t.Fatal(err)
		}
		if err := verify(dir); err != nil {
			t.Fatalf("a good image: %v", err)
		}
		return dir
	}
	for name, spoil := range map[string]func(dir string) error{
		"no sums":            func(dir string) error { return os.Remove(filepath.Join(dir, sumsFile)) },
		"no kernel":          func(dir string) error { return os.Remove(filepath.Join(dir, kernelFile)) },
		"half a root":        func(dir string) error { return os.Truncate(filepath.Join(dir, rootFile), 700) },
		"another kernel":     func(dir string) error { return os.WriteFile(filepath.Join(dir, kernelFile), []byte("KERNEL"), 0o600) },
		"nothing in the way": func(dir string) error { return os.RemoveAll(dir) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := good(t)
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			if verify(dir) == nil {
				t.Error("not noticed")
			}
		})
	}
}

func TestSystemsWithoutOneKernel(t *testing.T) {
	for name, kernels := range map[string][]string{"none": nil, "two": {"./boot/vmlinuz-1", "./boot/vmlinuz-2"}} {
		if convert(system(t, kernels...), t.TempDir()) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if convert(strings.NewReader("not a tar file, but long enough to be taken for one"+strings.Repeat(".", 1000)),
		t.TempDir()) == nil {
		t.Error("no tar file: no error")
	}
}

func system(t *testing.T, files ...string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range append(files, "./etc/hostname") {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 6, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("kernel")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}
