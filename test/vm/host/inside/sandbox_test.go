package inside

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const fencesDir = "/etc/systemd/system/edgeway.service.d"

// testSandbox tests the restrictions that the score of "systemd-analyze security" does not cover.
func testSandbox(h *host) {
	pid := h.show("edgeway", "MainPID")
	h.run("cp", "/usr/bin/true", "/var/lib/edgeway/program")
	defer h.remove("/var/lib/edgeway/program")
	user := []string{"--reuid", "edgeway", "--regid", "edgeway-status", "--groups", "edgeway"}
	within := append([]string{"--target", pid, "--mount", "--", "setpriv"}, user...)
	if out, code := h.try("nsenter", append(within, "/var/lib/edgeway/program")...); code == 0 ||
		!strings.Contains(out, "Permission denied") {
		h.Errorf("a program in the daemon's own folder: exit code %d, %q; want it not to be executed", code, out)
	}
	h.run("nsenter", append(within, "nft", "--version")...)
	if out := h.run("nsenter", append(within, "sh", "-c", findExecutableDirs)...); out != "" {
		h.Errorf("the daemon can execute what it has written: %s", out)
	}
	if out := h.run("setpriv", append(user, "sh", "-c", findExecutableDirs)...); !slices.Contains(strings.Fields(out),
		"/var/lib/edgeway") {
		h.Errorf("outside of the sandbox the same user can execute what it has written in %q only, and not in the daemon's own folder: the test shows nothing", out)
	}
	if out := h.run("nsenter", "--target", pid, "--mount", "--", "cat", "/etc/shadow"); out != "" {
		h.Errorf("/etc/shadow is there: %s", out)
	}
	calls := strings.Fields(h.show("edgeway", "SystemCallFilter"))
	for call, want := range map[string]bool{
		"pipe2": true, "splice": true, "io_uring_setup": false,
		"memfd_create": false, "keyctl": false,
	} {
		if has := slices.Contains(calls, call); has != want {
			h.Errorf("system call %s is allowed: %v, want %v", call, has, want)
		}
	}
	if adj, err := os.ReadFile("/proc/" + pid + "/oom_score_adj"); err != nil ||
		strings.TrimSpace(string(adj)) != "-250" {
		h.Errorf("oom_score_adj %q, %v; want -250", adj, err)
	}
}

// findExecutableDirs is a shell script that prints the directories in which a process can create and execute a program.
// The script tries the daemon's own directory and all mount points.
const findExecutableDirs = `{ echo /var/lib/edgeway; cut -d' ' -f5 /proc/self/mountinfo; } | sort -u | while read -r dir; do
	cp /usr/bin/true "$dir/own" 2>/dev/null || continue
	if "$dir/own" 2>/dev/null; then echo "$dir"; fi
	rm "$dir/own"
done`

// testOutOfMemory tests that if a child process exceeds the unit's memory limit, the kernel kills the child process and
// not the daemon.
func testOutOfMemory(h *host) {
	if most, err := strconv.ParseUint(h.show("edgeway", "MemoryMax"), 10, 64); err != nil || most > memory(h)/2+1<<20 {
		h.Errorf("MemoryMax %d, %v, want half of %d", most, err, memory(h))
	}
	h.run("systemctl", "set-property", "--runtime", "edgeway", "MemoryMax=200M", "MemorySwapMax=0")
	h.Cleanup(func() {
		h.remove("/run/systemd/system.control/edgeway.service.d")
		h.try("systemctl", "daemon-reload")
	})
	before := h.show("edgeway", "MainPID")
	cgroup := "/sys/fs/cgroup" + h.show("edgeway", "ControlGroup")
	_, code := h.try("sh", "-c", "echo $$ >"+cgroup+
		"/cgroup.procs; echo 1000 >/proc/self/oom_score_adj; exec tail /dev/zero")
	if code != -1 {
		h.Fatalf("exit code %d of a program that takes all memory; want it to be killed", code)
	}
	h.eventually("OOM killer", "journalctl", "-u", "edgeway", "-o", "cat", "-n", "20")
	if pid := h.show("edgeway", "MainPID"); pid != before || h.show("edgeway", "ActiveState") != "active" {
		h.Errorf("process %s became %s, %s", before, pid, h.show("edgeway", "ActiveState"))
	}
	h.verifyFromHost(clusterIP, loopback)
}

func memory(h *host) uint64 {
	h.Helper()
	var kib uint64
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		h.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err != nil {
		h.Fatal(err)
	}
	return kib << 10
}

// testRestartSteps tests that the unit sets RestartSteps= only if systemd is 254 or newer, because systemd 253 and
// earlier warn about the key.
func testRestartSteps(h *host) {
	var version int
	text := h.run("systemctl", "--version")
	if _, err := fmt.Sscanf(text, "systemd %d", &version); err != nil {
		h.Fatal(err)
	}
	want := "8"
	if version < 254 {
		want = ""
	}
	if got := h.show("edgeway", "RestartSteps"); got != want {
		h.Errorf("systemd %d has RestartSteps=%s, want %q", version, got, want)
	}
}

// testOperatorSettings tests the settings that install.md leaves to the operator. If the settings forbid a port, the
// journal must name the port.
func testOperatorSettings(h *host) {
	const file = "/etc/edgeway/manifests/fenced.yaml"
	h.write(fencesDir+"/fences.conf", "[Service]\nIPAddressDeny=169.254.0.0/16\nSocketBindDeny=any\n"+
		"SocketBindAllow=tcp:10249\nSocketBindAllow=tcp:10256\nSocketBindAllow=tcp:30000-30999\n")
	h.Cleanup(func() {
		h.remove(file)
		h.remove(fencesDir)
		h.try("systemctl", "daemon-reload")
		h.try("systemctl", "restart", "edgeway")
	})
	h.run("systemctl", "daemon-reload")
	h.run("systemctl", "restart", "edgeway")
	h.write(file, Manifest("fenced", "10.96.0.50", "fd00:96::50", 31086)) // systemd would keep an existing socket
	h.waitFor(eventTimeout, func() error {
		_, err := requestName("10.96.0.50:80")
		return err
	})
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.verifyFromOutside(nodePort)
	if !strings.Contains(h.run("systemctl", "--version"), "+BPF_FRAMEWORK") {
		h.Log("this systemd cannot do SocketBindDeny=")
		h.verifyFromHost("127.0.0.1:31086")
		return
	}
	h.waitFor(eventTimeout, func() error {
		out, _ := h.try("journalctl", "-u", "edgeway", "-x", "-n", "60", "--no-pager")
		if !strings.Contains(out, "127.0.0.1:31086") || !strings.Contains(out, "operation not permitted") ||
			!strings.Contains(out, "SocketBindDeny") {
			return errors.New("the journal does not say why the port is not served:\n" + out)
		}
		return nil
	})
}
