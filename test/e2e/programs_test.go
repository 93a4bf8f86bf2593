package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// wrapNFT installs a shell script that replaces nft when the daemon next starts. The script can call the real nft.
func (d *daemon) wrapNFT(script string) {
	d.t.Helper()
	const path = "/usr/sbin:/usr/bin:/sbin:/bin"
	bin := d.t.TempDir()
	d.must(os.WriteFile(filepath.Join(bin, "nft"), []byte("#!/bin/sh\nPATH="+path+"\n"+script), 0o755))
	d.env = append(d.env, "PATH="+bin+":"+path)
}

// nftModeSetter returns a function that selects nft's behavior: nft succeeds without any effect ("idle"), hangs
// ("hang"), or works ("work").
func (d *daemon) nftModeSetter() (set func(mode string)) {
	d.t.Helper()
	file := filepath.Join(d.dir, "nft-mode")
	set = func(mode string) {
		d.t.Helper()
		d.must(os.WriteFile(file+".new", []byte(mode), 0o600))
		d.must(os.Rename(file+".new", file))
	}
	set("work")
	d.wrapNFT(fmt.Sprintf("case $(cat %q) in\nidle) exec cat >/dev/null ;;\nhang) exec sleep 120 ;;\nesac\nexec nft \"$@\"\n", file))
	return set
}

// createSticky creates a Service with session affinity. Edgeway needs nft to program the chains and maps for session
// affinity.
func (n *namespace) createSticky(name string) (nodePort string) {
	n.t.Helper()
	svc := n.createService(name, func(s *corev1.ServiceSpec) {
		s.Type, s.SessionAffinity = corev1.ServiceTypeNodePort, corev1.ServiceAffinityClientIP
	})
	n.setEndpoints(name, ep1Addr)
	return at(nodeAddr, int(svc.Spec.Ports[0].NodePort))
}

// If nft reports success without any effect, the daemon must notice that the kernel's rules have not changed. When nft
// works again, the daemon must program the missing rules.
func TestNFTWithoutEffect(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	nft := d.nftModeSetter()
	d.startReady()
	n := l.newNamespace()
	_, early := n.createWeb("early")
	l.waitFor(longTimeout, answers(l.client, early, "ep1"))
	nft("idle")
	late := n.createSticky("late")
	l.waitFor(longTimeout, d.logged("changed nothing in the kernel"))
	l.must(answers(l.client, early, "ep1")())
	l.must(isUnanswered(l.client, late)())
	nft("work")
	l.waitFor(longTimeout, answers(l.client, late, "ep1"))
}

// If nft hangs during a sync and a reload, the daemon must still serve requests, and must exit in time.
func TestHungNFT(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	nft := d.nftModeSetter()
	d.startReady()
	n := l.newNamespace()
	_, early := n.createWeb("early")
	l.waitFor(longTimeout, answers(l.client, early, "ep1"))
	nft("hang")
	late := n.createSticky("late")
	d.signal(syscall.SIGHUP)
	l.mustStay(3*time.Second, func() error {
		if _, _, err := d.get(healthAddr, "/livez"); err != nil {
			return err
		}
		return answers(l.client, early, "ep1")()
	})
	limit := l.extendLimit(15 * time.Second) // TimeoutStopSec= in the unit sets the same limit
	began := time.Now()
	d.stop()
	if took := time.Since(began); took > limit {
		t.Errorf("the daemon ended after %s", took)
	}
	l.must(answers(l.client, early, "ep1")())
	nft("work")
	d.startReady()
	l.waitFor(longTimeout, answers(l.client, late, "ep1"))
}

// If a state file is a named pipe or a link to /dev/zero, the daemon must not take longer to start than with a damaged
// file.
func TestStateIsNotRegularFile(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	n := l.newNamespace()
	_, nodePort := n.createWeb("shop")
	l.waitFor(longTimeout, d.hasStored(n.name))
	for name, place := range map[string]func(path string) error{
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		d.stop()
		l.must(os.Remove(d.logFile()))
		l.onNode("nft", "flush", "ruleset")
		for _, f := range d.stateFiles() {
			l.must(os.RemoveAll(f))
			l.must(place(f))
		}
		d.start()
		l.waitFor(longTimeout, d.healthy)
		l.waitFor(longTimeout, d.logged("last-known state not used", "not a regular file"))
		l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
		t.Logf("state that is %s: served", name)
	}
}

// A host with nft 1.0.0, which is too old, must use iptables and report the fallback. After nft is updated, a reload
// must switch back to nftables. The daemon must start even if the configuration contains keys that Edgeway no longer
// supports, and must name these keys in a warning.
func TestOldNFTFallsBackToIPTables(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	version := filepath.Join(d.dir, "nft-version")
	l.must(os.WriteFile(version, []byte("nftables v1.0.0 (Fearless Fosdick)\n"), 0o600))
	d.wrapNFT(fmt.Sprintf("case $1 in --version) exec cat %q ;; esac\nexec nft \"$@\"\n", version))
	d.configure("[proxy]\nmin_sync_period = \"1s\"\n")
	n := l.newNamespace()
	d.watchOnly(n)
	d.startReady()
	clusterIP, _ := n.createWeb("shop")
	l.waitFor(longTimeout, answers(l.client, clusterIP, "ep1"))
	l.must(d.statusPrints("fallback", "because this host cannot run nftables", "nftables v1.0.0", "edgeway reload")())
	l.must(d.statusPrints("removed-key", "removed keys are ignored: proxy.min_sync_period (line ")())
	l.must(d.healthy())
	if out, _, code := d.edgeway("config", "check"); code != 2 {
		t.Errorf("config check ended with %d:\n%s", code, out)
	}
	l.must(os.WriteFile(version, []byte("nftables v1.0.6 (Lester Gooch #5)\n"), 0o600))
	d.configure("")
	d.edgeway("reload")
	l.waitFor(longTimeout, d.usesBackend("nftables"))
	l.must(l.onlyRulesOf("nftables")())
	l.must(answers(l.client, clusterIP, "ep1")())
}
