package nodeinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNameServers(t *testing.T) {
	dir := t.TempDir()
	etc, resolved := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "resolved")
	files := []string{etc, resolved}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want ...string) {
		t.Helper()
		if got := texts(readNameServers(files, nil)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("without files")
	write(etc, "# nameserver 192.0.2.9\nsearch example\nnameserver 127.0.0.53\nnameserver 192.0.2.3 # comment\nnameserver\nnameserver nonsense\noptions edns0\n")
	check("one file", "192.0.2.3")
	write(resolved, "nameserver 192.0.2.2\nnameserver fe80::1%eth0\nnameserver 2001:db8::53%eth0\nnameserver ::ffff:192.0.2.3\nnameserver 0.0.0.0")
	check("both files", "192.0.2.2", "192.0.2.3", "2001:db8::53")

	before := readNameServers(files, nil)
	if err := os.Remove(etc); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(etc, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := readNameServers(files, before); !slices.Equal(got, before) {
		t.Errorf("when a file cannot be read: %v, before %v", got, before)
	}
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "nameserver 198.51.100.%d\n", i)
	}
	write(resolved, many.String())
	if got := readNameServers(files, nil); len(got) != maxNameServers {
		t.Errorf("%d name servers", len(got))
	}
}

// systemd-resolved writes its upstream servers to a file in /run. A new mount namespace hides the host's /run.
func TestUpstreamServersOfResolved(t *testing.T) {
	runtime.LockOSThread() // the thread ends with the test, because its mounts differ
	const file = "/run/systemd/resolve/resolv.conf"
	for _, step := range []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("tmpfs", "/run", "tmpfs", 0, "") },
		func() error { return os.MkdirAll(filepath.Dir(file), 0o700) },
		func() error { return os.WriteFile(file, []byte("nameserver 203.0.113.53\n"), 0o600) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if got := texts(readNameServers(resolvConf(), nil)); !slices.Contains(got, "203.0.113.53") {
		t.Errorf("name servers %v", got)
	}
}

func TestNameServersChange(t *testing.T) {
	l := newLab(t, veth...)
	if err := os.WriteFile(l.resolv, []byte("nameserver 192.0.2.53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.ip("addr add 192.0.2.1/24 dev v0")
	l.wantChange()
	if got := texts(l.Host().NameServers); !slices.Equal(got, []string{"192.0.2.53"}) {
		t.Errorf("name servers %v", got)
	}
	if err := os.Remove(l.resolv); err != nil {
		t.Fatal(err)
	}
	l.wantChange() // no network event precedes a change to the files
	if got := l.Host().NameServers; len(got) != 0 {
		t.Errorf("name servers %v", got)
	}
}
