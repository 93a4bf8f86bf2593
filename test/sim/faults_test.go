package sim

import (
	"fmt"
	"os"
	"testing/synctest"
	"time"
)

func (s *simulation) apiFault() episode {
	every, only := s.rand.IntN(3) == 0, pick(s.rand, "", "", "services", "endpointslices")
	with := func(name string, f misbehaviour) episode {
		f.everyOther, f.only = every, only
		cut := s.rand.IntN(2) == 0
		return episode{
			fmt.Sprintf("API server %s (every other: %t, only: %q, watches end: %t)", name, every, only, cut),
			10 * time.Minute,
			func() { s.api.setFault(f, cut) }, func() { s.api.setFault(misbehaviour{}, false) },
		}
	}
	switch s.rand.IntN(18) {
	case 0:
		return with("answers 429", misbehaviour{status: 429, retryAfter: s.rand.IntN(60)})
	case 1:
		return with("answers an error", misbehaviour{status: pick(s.rand, 401, 403, 404, 500, 502, 503, 504)})
	case 2:
		return with("is cut off", misbehaviour{truncate: 1 + s.rand.IntN(3000)})
	case 3:
		return with("is slow", misbehaviour{delay: s.between(time.Second, time.Minute)})
	case 4:
		return with("hangs", misbehaviour{hang: true})
	case 5:
		return with("is not itself", misbehaviour{body: pick(s.rand, "<html>sign in</html>", "{}", " ",
			`{"apiVersion":"v1","kind":"Status","status":"Success"}`,
			`{"apiVersion":"v1","kind":"ServiceList","items":[]}`,
			`{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"5"},"items":[]}`)})
	case 6, 7:
		return with("answers 410", misbehaviour{gone: true})
	case 8:
		return with("cannot stream lists", misbehaviour{noStream: true, gone: true})
	case 9:
		return with("sends no bookmarks", misbehaviour{noBookmark: true})
	case 10:
		e := with("lags", misbehaviour{lag: true})
		begin, end := e.begin, e.end
		e.begin, e.end = func() { begin(); s.lagging = true }, func() { end(); s.lagging = false }
		return e
	case 11, 12:
		return episode{"API server is down, and forgets its history", 10 * time.Minute, s.api.stop, func() {
			s.api.setFault(misbehaviour{gone: true}, false)
			s.api.setFault(misbehaviour{}, false)
			s.api.start(s.addr)
		}}
	case 13:
		return episode{"API server is down", 10 * time.Minute, s.api.stop, func() { s.api.start(s.addr) }}
	case 14:
		token := fmt.Sprintf("token%d", s.rand.IntN(1000))
		return episode{
			"API server wants another token", 5 * time.Minute, func() { s.api.setToken(token) },
			func() { s.token = token; s.writeKubeconfig(false) },
		}
	case 15:
		s.moved = true // after a move, the name server must not lie
		addr := fmt.Sprintf("192.0.2.%d:6443", 10+s.rand.IntN(3))
		return episode{"API server moves to " + addr, 5 * time.Minute, func() {
			s.api.stop()
			if !s.named && addr != s.addr { // a different URL may lead to a different server
				s.api.renumber()
			}
			s.api.start(addr)
		}, func() {
			s.addr = addr
			s.names.move(addr)
			s.writeKubeconfig(false)
		}}
	case 16:
		return episode{
			"another server answers", 5 * time.Minute,
			func() { s.api.stop(); s.replacementServer = newForeignServer(s); s.replacementServer.start(s.addr) },
			func() { s.replacementServer.stop(); s.api.start(s.addr) },
		}
	default:
		return episode{
			"kubeconfig is damaged", 5 * time.Minute, func() { s.writeKubeconfig(true); s.unusable = true },
			func() { s.writeKubeconfig(false); s.unusable = false; s.startUnlessDown() },
		}
	}
}

// newForeignServer returns a server that has no objects and does not use the API server's certificate.
func newForeignServer(s *simulation) *apiServer {
	return newAPIServer(s.net, s.creds.foreignCert, s.token)
}

func (s *simulation) linkFault() episode {
	switch s.rand.IntN(3) {
	case 0:
		return episode{
			"link is silent", 5 * time.Minute, func() { s.net.setSilent(true) },
			func() { s.net.setSilent(false) },
		}
	case 1:
		return episode{"link forgets its connections", time.Second, s.net.silenceConns, nil}
	default:
		return episode{"link resets its connections", time.Second, s.net.reset, nil}
	}
}

func (s *simulation) kernelFault() episode {
	k := pick(s.rand, s.kernel, s.kernel, s.follower)
	with := func(name string, longest time.Duration, f kernelFault) episode {
		return episode{k.name + " " + name, longest, func() { k.set(f) }, func() { k.set(kernelFault{}) }}
	}
	switch s.rand.IntN(7) {
	case 0:
		return with("fails", 5*time.Minute, kernelFault{fails: true})
	case 1:
		return with("fails half-way", 5*time.Minute, kernelFault{fails: true, half: true})
	case 2:
		return with("stalls", 5*time.Minute, kernelFault{stalls: true})
	case 3:
		return with("is slow", 5*time.Minute, kernelFault{slow: s.between(time.Millisecond, 5*time.Second)})
	case 4:
		return s.refusal()
	case 5:
		return with("loses rules in each Apply", 2*time.Minute, kernelFault{loses: true, slow: time.Second})
	default:
		part := 1 + s.rand.IntN(3)
		return episode{k.name + " loses rules", time.Second, func() { k.removeServicePorts(part) }, nil}
	}
}

func (s *simulation) refusal() episode {
	names := s.rand.IntN(2) == 0
	return s.exclusionFault("backend refuses Services", func(refused map[string]bool) {
		s.kernel.set(kernelFault{refuse: refused, names: names})
	}, func() { s.kernel.set(kernelFault{}) })
}

// endSearch decrements the number of searches one second after the fault ends, because the pipeline may still be
// searching.
func (s *simulation) endSearch() { time.AfterFunc(time.Second, func() { s.searching.Add(-1) }) }

// exclusionFault returns a fault that makes the daemon leave out some ServicePorts until they change or until the next
// full sync. The time between two full syncs is at most 1.1 sync periods.
func (s *simulation) exclusionFault(name string, begin func(services map[string]bool), end func()) episode {
	part := 1 + s.rand.IntN(3)
	return episode{name, 5 * time.Minute, func() {
		s.searching.Add(1)
		services := map[string]bool{}
		for i, svc := range s.services {
			if i%part == 0 {
				services[apiNamespace+"/"+svc.name] = true
				s.excuse(apiNamespace+"/"+svc.name, 24*time.Hour)
			}
		}
		begin(services)
	}, func() {
		end()
		s.endSearch()
		for name := range s.refused {
			s.excuse(name, s.fullSync*11/10+time.Minute)
		}
	}}
}

func (s *simulation) excuse(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[name] = time.Now().Add(d)
}

func (s *simulation) fileFault() episode {
	end := func(f func()) func() { return func() { s.damaged = false; f() } }
	if s.rand.IntN(3) == 0 {
		return episode{
			"folder of manifests is away", 5 * time.Minute, func() { s.damaged = true; s.files.hide() },
			end(s.files.show),
		}
	}
	i, way := s.rand.IntN(2), s.rand.IntN(3)
	return episode{
		fmt.Sprintf("manifest %d is damaged (%d)", i, way), 5 * time.Minute,
		func() { s.damaged = true; s.notef("it %s", s.files.damage(i, way, s.rand)) },
		end(func() { s.files.save(i, true) }),
	}
}

// diskFault returns a fault that prevents the daemon from writing its last-known state. A process that has just started
// reads the state first. Without the state, the daemon knows no address that TLS has verified, and a name server that
// keeps lying cuts the host off.
func (s *simulation) diskFault() episode {
	return episode{
		"disk is away", 10 * time.Minute, func() { synctest.Wait(); s.setDiskAway(true) },
		func() { s.setDiskAway(false) },
	}
}

// setDiskAway replaces the directory of the last-known state with a file, or restores the directory.
func (s *simulation) setDiskAway(away bool) {
	if away == s.diskAway {
		return
	}
	s.diskAway = away
	state := s.config.Source.LastKnown.Directory
	if away {
		s.diskAwaySince = time.Now()
		must(os.Rename(state, state+".away"))
		must(os.WriteFile(state, nil, 0o600))
		return
	}
	must(os.Remove(state))
	must(os.Rename(state+".away", state))
	s.extendBlame()
}

// extendBlame extends the blame of Services whose blame did not end before the last-known state went away. The state
// may still lack these Services, because the daemon wrote it while a component panicked for them. If the daemon starts
// with this state, its first Apply, which may stall for a minute, removes them from the kernel. A running daemon adds
// them to the state within saveLimit.
func (s *simulation) extendBlame() {
	s.mu.Lock()
	defer s.mu.Unlock()
	extended := time.Now().Add(recoveryLimit)
	for name, until := range s.blamed {
		if until.After(s.diskAwaySince) && until.Before(extended) {
			s.blamed[name] = extended
		}
	}
}

// processFault returns a fault that either reloads or restarts the daemon.
func (s *simulation) processFault() episode {
	if s.rand.IntN(3) == 0 {
		return episode{"reload", time.Second, func() {
			if s.process != nil && !s.unusable {
				s.reload()
			}
		}, nil}
	}
	crash := s.rand.IntN(2) == 0
	return episode{fmt.Sprintf("daemon is down (crash: %t)", crash), 3 * time.Minute, func() {
		s.down = true
		if s.process != nil {
			s.kill(crash)
		}
	}, func() {
		s.down = false
		s.startUnlessDown()
	}}
}
