package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

func TestReload(t *testing.T) {
	l, d := running(t)
	_, clusterIP, nodePort := d.shop()

	d.configure("[proxy]\nnodeport_adresses = []\n")
	d.signal(syscall.SIGHUP)
	// The log must contain the misspelled key and the suggested key.
	l.waitFor(longTimeout, d.logged("nodeport_adresses", "nodeport_addresses"))
	l.mustStay(time.Second, answers(l.client, nodePort, "ep1"))
	l.must(d.healthy())

	d.configure("[proxy]\nnodeport_addresses = []\n")
	d.signal(syscall.SIGHUP)
	// A load balancer that queries /healthz must not drain the host during a reload.
	l.mustStay(time.Second, func() error {
		if code, body, err := d.get(healthAddr, "/healthz"); err == nil && code != 200 {
			return fmt.Errorf("/healthz is %d during a reload: %s", code, body)
		}
		return answers(l.client, clusterIP, "ep1")()
	})
	l.waitFor(longTimeout, isUnanswered(l.client, nodePort))
	l.waitFor(longTimeout, d.healthy)

	d.configure("")
	d.signal(syscall.SIGHUP)
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	l.waitFor(longTimeout, d.healthy)
}

// If a new configuration is valid but the daemon cannot apply it, the daemon must keep the previous configuration.
func TestFailedReloadKeepsPreviousConfiguration(t *testing.T) {
	l, d := running(t)
	clusterIP, _ := l.newNamespace().createWeb("shop")
	l.waitFor(longTimeout, answers(l.client, clusterIP, "ep1"))

	dropIn := filepath.Join(d.dir, "conf.d", "50-socket.toml")
	l.must(os.WriteFile(dropIn, []byte("[control]\nsocket = \"/proc/nowhere.sock\"\n"), 0o600))
	d.signal(syscall.SIGHUP)
	l.waitFor(longTimeout, d.logged("level=ERROR", "/proc/nowhere.sock"))
	l.must(os.Remove(dropIn)) // edgeway commands also read the drop-in
	l.waitFor(longTimeout, d.statusPrints("healthy"))
	l.must(answers(l.client, clusterIP, "ep1")())
}

func TestEstablishedConnectionOutlivesDaemon(t *testing.T) {
	l, d := running(t)
	_, _, nodePort := d.shop()
	long, failure := l.client.Open(flow(l.client, plan.TCP, nodePort))
	if long == nil {
		t.Fatal(failure)
	}
	defer long.Close()
	goesOn := func(when string) {
		t.Helper()
		if got := long.Ask(dialTimeout); got.Server != "ep1" {
			t.Errorf("the connection %s: %s", when, got)
		}
		l.must(answers(l.client, nodePort, "ep1")())
	}
	goesOn("at first")
	d.kill()
	goesOn("after a crash")
	d.startReady()
	goesOn("after the start that followed")
	d.stop()
	goesOn("after an orderly end")
	d.startReady()
	goesOn("after one more start")
	l.onNode("nft", "flush", "ruleset")
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	goesOn("after a loss of all rules")
}

func TestCleanupRestoresHost(t *testing.T) {
	for _, backend := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
		t.Run(backend, func(t *testing.T) { testCleanup(t, backend) })
	}
}

func testCleanup(t *testing.T, backend string) {
	l := newLab(t)
	l.onNode("nft", "add table inet foreign; add chain inet foreign input { type filter hook input priority 0; }; add rule inet foreign input tcp dport 9 drop")
	for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		if backend != "nftables" {
			l.onNode(backend, "-A", chain, "-p", "tcp", "--dport", "9", "-j", "DROP")
		}
	}
	before := l.stableKernelState()
	d := l.newDaemon()
	d.configure(withBackend(backend))
	d.startReady()
	_, _, nodePort := d.shop()
	if l.kernelState() == before {
		t.Fatal("the daemon leaves no trace: this test sees nothing")
	}
	d.stop()
	for range 2 { // the second run must succeed although there is nothing left to remove
		if out, errs, code := d.edgeway("cleanup"); code != 0 {
			t.Fatalf("edgeway cleanup ended with %d: %s%s", code, out, errs)
		}
		if after := l.kernelState(); after != before {
			t.Fatalf("before:\n%s\nafter edgeway cleanup:\n%s", before, after)
		}
	}
	l.must(isUnanswered(l.client, nodePort)())
}

// The command `edgeway cleanup` must not remove the rules of a daemon that hangs or that SIGSTOP has stopped. The rules
// still serve connections, and the daemon would restore the rules when it resumes.
func TestCleanupRefusesWithHungDaemon(t *testing.T) {
	l, d := running(t)
	_, _, nodePort := d.shop()
	d.signal(syscall.SIGSTOP)
	out, errs, code := d.edgeway("cleanup")
	if pid := fmt.Sprintf("process %d", d.cmd.Process.Pid); code != 1 || !strings.Contains(errs, pid) ||
		!strings.Contains(errs, "fix: ") {
		t.Errorf("edgeway cleanup ended with %d, and does not name %s: %s%s", code, pid, out, errs)
	}
	l.must(answers(l.client, nodePort, "ep1")())
	d.signal(syscall.SIGCONT)
	l.waitFor(longTimeout, d.healthy)
	d.stop()
	if out, errs, code := d.edgeway("cleanup"); code != 0 {
		t.Errorf("after the daemon's end edgeway cleanup ended with %d: %s%s", code, out, errs)
	}
	l.waitFor(longTimeout, isUnanswered(l.client, nodePort))
}

// stableKernelState waits until new interfaces have all of their routes, and then returns the kernel's state.
func (l *lab) stableKernelState() string {
	l.t.Helper()
	var traces string
	l.waitFor(longTimeout, func() error {
		before := traces
		time.Sleep(200 * time.Millisecond)
		if traces = l.kernelState(); traces != before {
			return errors.New("addresses and routes still come and go")
		}
		return nil
	})
	return traces
}

// kernelState returns, as text, all kernel state that a proxy can leave behind.
func (l *lab) kernelState() string {
	l.t.Helper()
	all := netlab.WithoutEmptyTables(l.onNode("nft", "list", "ruleset")) + l.onNode("ip", "-o", "addr") + l.onNode("ip",
		"rule") + l.onNode("ip", "route", "show", "table", "all")
	// The test compares the output of iptables-legacy-save without comments and counters.
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		all += regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]`).ReplaceAllString(l.onNode(program, "-t", "filter")+
			l.onNode(program, "-t", "nat"), "")
	}
	return all
}

func TestCommandsWithDaemon(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	if _, errs, code := d.edgeway("status"); code != 3 || errs == "" {
		t.Errorf("status without a daemon ended with %d and said %q, want 3 and a reason", code, errs)
	}
	d.startReady()
	n, clusterIP, nodePort := d.shop()
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"status"}, []string{"kube", "nftables"}},
		{[]string{"plan", n.name + "/shop"}, []string{n.name + "/shop:web/TCP", ep1Addr}},
		{[]string{"explain", clientAddr, nodePort + "/tcp"}, []string{"forward", ep1Addr, n.name + "/shop"}},
		{[]string{"explain", clientAddr, strings.TrimSuffix(clusterIP, ":80") + ":81/tcp"}, []string{"reject"}},
	} {
		// The daemon writes a plan's rules to the kernel shortly before it reports that the plan is in force.
		l.waitFor(longTimeout, func() error {
			out, errs, code := d.edgeway(c.args...)
			if code != 0 || !containsAll(out, c.says) {
				return fmt.Errorf("edgeway %v ended with %d; its output should have %q:\n%s%s", c.args, code, c.says,
					out, errs)
			}
			return nil
		})
	}
	if info, err := os.Stat(d.dir + "/edgeway.sock"); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the control socket is not for its owner and its group alone: %v %v", info.Mode(), err)
	}
}

// A second daemon with a different socket must exit, because two daemons would repair each other's rules forever.
func TestSecondDaemonExits(t *testing.T) {
	l, first := running(t)
	second := l.newDaemon()
	second.start()
	select {
	case <-second.ended:
	case <-time.After(longTimeout):
		t.Fatal("the second daemon runs")
	}
	l.must(second.logged("another edgeway daemon is running in this network namespace")())
	l.must(first.healthy())
	first.stop()
	second.startReady()
}
