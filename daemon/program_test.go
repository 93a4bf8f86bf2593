package daemon

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// Only what can be read again from the file goes: not what is written to, was written to, or is another file's.
func TestUnchangedMappings(t *testing.T) {
	const smaps = `00400000-00d1f000 r-xp 00000000 fe:00 1234                               /usr/sbin/edge way
Size:               9340 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00d1f000-01800000 r--p 0091f000 fe:00 1234                               /usr/sbin/edge way
Anonymous:             4 kB
01800000-01900000 rw-p 01400000 fe:00 1234                               /usr/sbin/edge way
Anonymous:             0 kB
01900000-01a00000 rw-p 00000000 00:00 0
Anonymous:             0 kB
01a00000-01b00000 r--p 00000000 fe:00 99                                 /usr/lib/libc.so.6
Anonymous:             0 kB
7f000000-7f001000 r--p 00000000 fe:00 1234                       /usr/sbin/edge way
Anonymous:             0 kB
`
	want := []span{{0x400000, 0xd1f000}, {0x7f000000, 0x7f001000}}
	if got := unchanged(strings.NewReader(smaps), "/usr/sbin/edge way"); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// This program goes on without its pages, and has fewer.
func TestProgramIsUnmapped(t *testing.T) {
	before := filePages(t)
	unmapProgram()
	if after := filePages(t); after > before*3/4 {
		t.Errorf("%d KiB of files are mapped, %d before", after, before)
	}
}

// filePages gives what this process has of files in its memory, in KiB.
func filePages(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		t.Fatalf("/proc/self/status: RssFile: %v", err)
	}
	return kib
}
