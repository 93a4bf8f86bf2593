package daemon

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram takes the program's own code and constants out of the process's memory, after a start or much other work: most of what
// that runs is not run at rest. What is needed comes back from the page cache, at some microseconds for 64 KiB; the rest the
// kernel can take for others without looking for who uses it, which it does last of all with pages that are mapped.
func unmapProgram() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	for _, m := range unchanged(maps, exe) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED) // what fails stays mapped
	}
}

// span is a range of addresses.
type span struct{ start, end uintptr }

// unchanged finds the mappings of a file in /proc/PID/smaps that can be read again from it: nothing writes to them, and they have no
// page of the process's own, such as those that a loader has relocated, or that have a breakpoint of a debugger or of uprobes.
func unchanged(smaps io.Reader, file string) (all []span) {
	var found span
	var ours bool
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		// "00400000-00d1f000 r-xp 00000000 fe:00 1234  /usr/sbin/edgeway", then "Anonymous:  0 kB" and others.
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 5 && strings.Contains(fields[0], "-"):
			_, err := fmt.Sscanf(fields[0], "%x-%x", &found.start, &found.end)
			ours = err == nil && strings.HasPrefix(fields[1], "r-") && strings.Join(fields[5:], " ") == file
		case ours && len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0":
			all = append(all, found)
		}
	}
	return all
}
