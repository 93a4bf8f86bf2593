package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fileDaemon is a daemon with a manifest directory as its only source. Each file in manifestFiles defines one Service.
type fileDaemon struct {
	*daemon
	folder string
}

var manifestFiles = [...]string{"a.yaml", "b.yaml", "c.yaml"}

func (l *lab) newFileDaemon() *fileDaemon {
	l.t.Helper()
	d := l.newDaemon()
	s := &fileDaemon{daemon: d, folder: filepath.Join(d.dir, "manifests")}
	l.must(os.Mkdir(s.folder, 0o700))
	for i := range manifestFiles {
		s.write(i)
	}
	l.must(os.WriteFile(d.config, fmt.Appendf(nil, `version = 1
[node]
name = %q
[source.file]
paths = [%q]
[source.lastknown]
directory = %q
[control]
socket = %q
[health]
address = %q
[metrics]
address = ""
`, nodeName, s.folder, d.stateDir(), filepath.Join(d.dir, "edgeway.sock"), healthAddr), 0o600))
	return s
}

func (s *fileDaemon) path(i int) string { return filepath.Join(s.folder, manifestFiles[i]) }

func (s *fileDaemon) write(i int) {
	s.t.Helper()
	s.must(os.WriteFile(s.path(i), fmt.Appendf(nil, `apiVersion: v1
kind: Service
metadata: {name: shop-%[1]d}
spec: {type: NodePort, clusterIP: 10.97.0.%[2]d, ports: [{port: 80, nodePort: %[3]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-%[1]d, labels: {kubernetes.io/service-name: shop-%[1]d}}
addressType: IPv4
ports: [{port: %[4]d}]
endpoints: [{addresses: [%[5]s]}]
`, i, 10+i, 30080+i, endpointPort, ep1Addr), 0o600))
}

func (s *fileDaemon) open(services ...int) func() error {
	return func() error {
		for _, i := range services {
			if err := answers(s.client, at(nodeAddr, 30080+i), "ep1")(); err != nil {
				return err
			}
		}
		return nil
	}
}

func (s *fileDaemon) allOpen() error { return s.open(0, 1, 2)() }

func (s *fileDaemon) closed(service int) func() error {
	return isUnanswered(s.client, at(nodeAddr, 30080+service))
}

func (s *fileDaemon) stored() error {
	for i := range manifestFiles {
		if err := s.hasStored(fmt.Sprintf("shop-%d", i))(); err != nil {
			return err
		}
	}
	return nil
}

// readyzReturns returns an error unless /readyz returns the wanted status code. If the wanted code is not 200, `edgeway
// status` must also exit with 4.
func (s *fileDaemon) readyzReturns(want int) func() error {
	return func() error {
		code, body, err := s.get(healthAddr, "/readyz")
		if err != nil || code != want {
			return fmt.Errorf("/readyz is %d, want %d: %s (%w)", code, want, body, orElse(err, "no error"))
		}
		if out, errs, code := s.edgeway("status"); want != 200 && code != 4 {
			return fmt.Errorf("edgeway status ended with %d, want 4:\n%s%s", code, out, errs)
		}
		return nil
	}
}

// reports returns an error unless the status (as text and as JSON) and the log contain the words.
func (s *fileDaemon) reports(synced bool, words ...string) func() error {
	return func() error {
		if err := errors.Join(s.statusHas(words...)(),
			s.logged(append([]string{"fault=source-file"}, words...)...)()); err != nil {
			return err
		}
		out, _, _ := s.edgeway("status", "--json")
		var st struct {
			Sources []struct {
				Name            string
				Synced, Partial bool
			}
			Faults []struct{ ID, Message, Fix string }
		}
		if err := json.Unmarshal([]byte(out), &st); err != nil {
			return fmt.Errorf("edgeway status --json: %w in %q", err, out)
		}
		for _, src := range st.Sources {
			if src.Name == "file" && (src.Synced != synced || !src.Partial) {
				return fmt.Errorf("source %+v, want synced %v and partial", src, synced)
			}
		}
		for _, c := range st.Faults {
			lacks := func(w string) bool { return !strings.Contains(c.Message+c.Fix, w) }
			if c.ID == "source-file" && !slices.ContainsFunc(words, lacks) {
				return nil
			}
		}
		return fmt.Errorf("no fault source-file with %q: %s", words, out)
	}
}

func (s *fileDaemon) content() error {
	st, err := s.status()
	for _, c := range st.Faults {
		if c.ID == "source-file" {
			err = fmt.Errorf("condition %+v, want none", c)
		}
	}
	return err
}

// damage is an accidental change to the manifest directory.
type damage struct {
	name       string
	do, repair func(*fileDaemon)
	synced     bool // synced reports whether the daemon can read all paths
	words      []string
}

func damages() []damage {
	return []damage{
		{
			"the folder renamed",
			func(s *fileDaemon) { s.must(os.Rename(s.folder, s.folder+"-away")) },
			func(s *fileDaemon) { s.must(os.Rename(s.folder+"-away", s.folder)) },
			false,
			[]string{"manifests: ", syscall.ENOENT.Error(), "source.file.paths"},
		},
		{
			"the file system not mounted",
			func(s *fileDaemon) {
				s.must(os.Rename(s.folder, s.folder+"-away"))
				s.must(os.Mkdir(s.folder, 0o700))
			},
			func(s *fileDaemon) {
				s.must(os.Remove(s.folder))
				s.must(os.Rename(s.folder+"-away", s.folder))
			},
			false,
			[]string{"manifests: no manifest"},
		},
		{
			"one broken, one emptied",
			func(s *fileDaemon) {
				s.must(os.WriteFile(s.path(0), []byte("kind: Service\nspec: {ports: [{port: 80"), 0o600))
				s.must(os.Truncate(s.path(1), 0))
			},
			func(s *fileDaemon) {
				s.write(0)
				s.write(1)
			},
			true,
			[]string{"a.yaml:2: ", "b.yaml: the file is empty", "Service default/shop-0, Service default/shop-1"},
		},
		{
			"one on a disk that fails",
			func(s *fileDaemon) {
				s.must(os.Remove(s.path(2)))
				s.must(os.Symlink("/proc/self/mem", s.path(2)))
			},
			func(s *fileDaemon) {
				s.must(os.Remove(s.path(2)))
				s.write(2)
			},
			true,
			[]string{"c.yaml: " + syscall.EIO.Error()},
		},
	}
}

// If manifests are damaged before the daemon starts, the host must keep all Services, even after a reboot. The status
// and the log must name the damaged path and a fix.
func TestManifestsDamagedBeforeStart(t *testing.T) {
	t.Parallel()
	s := newLab(t).newFileDaemon()
	s.startReady()
	s.waitFor(longTimeout, s.allOpen)
	s.waitFor(longTimeout, s.stored)
	s.must(s.content())
	for _, c := range damages() {
		s.stop()
		c.do(s)
		for _, reboot := range []bool{false, true} {
			t.Logf("%s, reboot %v", c.name, reboot)
			s.must(os.Truncate(s.logFile(), 0))
			if reboot {
				s.onNode("nft", "flush", "ruleset")
				s.must(s.closed(0)())
			}
			s.start()
			if !reboot {
				s.mustStay(2*time.Second, s.allOpen)
			}
			s.waitFor(longTimeout, s.healthy)
			s.must(s.allOpen())
			s.waitFor(longTimeout, s.reports(c.synced, c.words...))
			s.must(s.readyzReturns(map[bool]int{true: 200, false: 503}[c.synced])())
			s.stop()
		}
		c.repair(s)
		s.startReady()
		s.must(s.allOpen())
		s.waitFor(longTimeout, s.content)
		s.must(s.readyzReturns(200)())
	}
	// When the daemon starts, it must remove a Service whose manifest an operator deleted while the daemon was down.
	s.stop()
	s.must(os.Remove(s.path(0)))
	s.startReady()
	s.must(errors.Join(s.closed(0)(), s.open(1, 2)(), s.content()))
}

// Without a last-known state, the daemon must not treat an unreadable directory as an empty cluster. The last-known
// state is missing, for example, after an upgrade from a version that did not store it. The daemon must leave its rules
// in the kernel.
func TestUnreadableManifestsWithoutLastKnownState(t *testing.T) {
	t.Parallel()
	s := newLab(t).newFileDaemon()
	s.startReady()
	s.waitFor(longTimeout, s.allOpen)
	s.stop()
	for _, forget := range []func(){
		func() { s.must(os.RemoveAll(s.stateDir())) },
		func() {
			s.must(os.WriteFile(filepath.Join(s.stateDir(), "manifests", "lastknown.jsonl"), []byte("damaged\n"),
				0o600))
		},
	} {
		forget()
		s.must(os.Rename(s.folder, s.folder+"-away"))
		s.start()
		s.waitFor(longTimeout, s.reports(false, s.folder, syscall.ENOENT.Error()))
		s.mustStay(2*time.Second, s.allOpen)
		s.must(errors.Join(s.readyzReturns(503)(), s.healthIs(503)(), s.statusHas("source file")()))
		s.must(os.Rename(s.folder+"-away", s.folder))
		s.waitFor(longTimeout, s.healthy)
		s.waitFor(longTimeout, s.content)
		s.must(errors.Join(s.allOpen(), s.readyzReturns(200)()))
		s.waitFor(longTimeout, s.stored)
		s.stop()
	}
}

// If manifests are damaged while the daemon is running, the daemon must keep all Services. If an operator removes a
// manifest, the daemon must remove the Service that the manifest defined.
func TestManifestsDamagedAtRunTime(t *testing.T) {
	t.Parallel()
	s := newLab(t).newFileDaemon()
	s.startReady()
	s.waitFor(longTimeout, s.allOpen)
	for i, c := range damages() {
		t.Log(c.name)
		s.must(os.Truncate(s.logFile(), 0))
		c.do(s)
		s.waitFor(longTimeout, s.reports(true, c.words...))
		s.mustStay(time.Second, s.allOpen)
		s.must(errors.Join(s.healthy(), s.readyzReturns(200)()))
		c.repair(s)
		s.waitFor(longTimeout, s.content)
		if i < 3 { // from the seventh change in an hour on, the log omits lines about the fault
			s.waitFor(longTimeout, s.logged("fault ended", "fault=source-file"))
		}
		s.must(s.allOpen())
	}
	s.must(os.Remove(s.path(0)))
	s.waitFor(longTimeout, s.closed(0))
	s.must(os.WriteFile(s.path(1), []byte("# sold out\n"), 0o600))
	s.waitFor(longTimeout, s.closed(1))
	s.must(errors.Join(s.open(2)(), s.content()))
	s.must(os.Remove(s.path(1)))
	s.must(os.WriteFile(s.path(2), []byte("---\n"), 0o600))
	s.waitFor(longTimeout, s.closed(2))
	s.must(s.content())
}
