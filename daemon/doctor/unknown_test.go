package doctor

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/daemon/config"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// runWithoutDescriptors runs f while this process cannot open any files.
func runWithoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	low := before
	low.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	if _, err := os.Open("/proc/self/stat"); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("a file can be opened: %v", err)
	}
	f()
}

func TestChecksWithoutFileDescriptors(t *testing.T) {
	h, _ := testHost(servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")}, "10.244.1.11:8080"))
	h.System = Kernel{}
	h.Config = config.Default()
	h.Backend.Name, h.Backend.Traits.DropIn = "ebpf", "ebpf.conf"
	for _, name := range []string{
		"route-services", "route-endpoints", "systemd", "ip-forward", "rp-filter", "conntrack",
	} {
		var found []fault.Fault
		runWithoutDescriptors(t, func() {
			for _, c := range Checks() {
				if c.Name == name {
					found = RunChecks(t.Context(), h, []Check{c})
				}
			}
		})
		if len(found) != 1 || found[0].Severity != fault.Warning ||
			!strings.Contains(found[0].Message, "too many open files") || strings.Contains(found[0].Fix, "ip route") {
			t.Errorf("%s: %+v, want one finding that says why the check is incomplete", name, found)
		}
	}
}

// Only some of the kernel's errors mean that there is no route. After any other error, the check reports that it
// could not inspect the host.
func TestLookupErrorIsNotMissingRoute(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{{unix.ENETUNREACH, false}, {unix.EACCES, false}, {unix.EMFILE, true}, {unix.EPERM, true}, {unix.ENODEV, true}} {
		h, f := testHost()
		f.lookupErr = c.err
		i := 0
		for Checks()[i].Name != "route-services" {
			i++
		}
		found := RunChecks(t.Context(), h, Checks()[i:i+1])
		if len(found) != 1 || strings.HasPrefix(found[0].Message, "cannot complete the check") != c.want {
			t.Errorf("%v: %+v, want unknown %t", c.err, found, c.want)
		}
	}
}
