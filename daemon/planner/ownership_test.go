package planner

import (
	"slices"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// rival returns a Service that requests 198.51.100.10:80. day is the day in January on which the Service was created,
// or 0 if the Service has no creation time.
func rival(name string, day int, change ...func(*source.Service)) *source.Service {
	return testService(name, append([]func(*source.Service){func(s *source.Service) {
		s.Created = time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)
		if day == 0 {
			s.Created = time.Time{}
		}
		s.ClusterIPs, s.ExternalIPs = nil, ips("198.51.100.10")
		s.ClusterIPs = append(s.ClusterIPs, ip("10.96.1."+name))
	}}, change...)...)
}

// wantOwner fails the test unless the named rival is the only owner of the address.
func (w *world) wantOwner(want string) {
	w.Helper()
	var got []string
	for _, sp := range w.plan.Services {
		if slices.ContainsFunc(sp.Frontends, func(f plan.Frontend) bool { return f.Kind == plan.ExternalIP }) {
			got = append(got, sp.Name.Name)
		}
	}
	if !slices.Equal(got, []string{want}) {
		w.Errorf("got %v, want %s; problems %v", got, want, w.problems)
	}
}

// The owner of an address keeps it even if an older Service, a changed Service, or a Service without a creation time
// requests it.
func TestOwnerKeepsAddress(t *testing.T) {
	w := newWorld(t, testOptions(), rival("5", 5))
	w.wantOwner("5")
	w.put(rival("1", 1))
	w.wantOwner("5")
	w.wantFrontends("1", "ClusterIP 10.96.1.1:80")
	w.wantProblems("Service ns/1: spec.externalIPs: 198.51.100.10:80/TCP belongs to Service ns/5")
	w.put(rival("9", 0))
	w.wantOwner("5")
	// Updating the Service that owns the address does not change the owner.
	w.put(rival("5", 5, func(s *source.Service) { s.Affinity = time.Hour }))
	w.wantOwner("5")

	// The owner also keeps the address after a change that affects all Services, and after a reload with a new Planner.
	w.put(&source.Node{Name: hostName, Zone: "elsewhere"})
	w.wantOwner("5")
	w.Planner = New(testOptions())
	w.replan()
	w.wantOwner("5")

	w.put(rival("5", 5, func(s *source.Service) { s.ExternalIPs = nil })) // the owner no longer requests the address
	w.wantOwner("1")
	w.put(rival("5", 5))
	w.wantOwner("1")
	w.remove(rival("1", 1))
	w.wantOwner("5")
	w.remove(rival("5", 5))
	w.wantOwner("9")
	w.wantProblems()

	other := rival("3", 3, func(s *source.Service) { s.Ports[0].Protocol = plan.UDP })
	w.put(other) // a request for another protocol does not conflict
	w.wantProblems()
}

// If several Services request an address in the same plan, the oldest Service becomes the owner. Among Services of the
// same age, the Service with the lowest UID becomes the owner or, if the UIDs are equal, the Service whose name sorts
// first. A Service without a creation time comes last. When the owner is deleted, the oldest other Service that
// requests the address becomes the owner.
func TestOldestNewServiceBecomesOwner(t *testing.T) {
	for name, c := range map[string]struct {
		list []source.Object
		want string
	}{
		"age":                {[]source.Object{rival("1", 7), rival("2", 3), rival("3", 5)}, "2"},
		"no age":             {[]source.Object{rival("1", 0), rival("2", 3)}, "2"},
		"no age at all":      {[]source.Object{rival("2", 0), rival("1", 0)}, "1"},
		"one age, then UID":  {[]source.Object{rival("1", 3, uid("z")), rival("2", 3, uid("a"))}, "2"},
		"one UID, then name": {[]source.Object{rival("2", 3, uid("a")), rival("1", 3, uid("a"))}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			newWorld(t, testOptions(), c.list...).wantOwner(c.want)
			w := newWorld(t, testOptions())
			w.put(c.list...)
			w.wantOwner(c.want)
			w = newWorld(t, testOptions(), rival("4", 1, uid("zz")))
			w.sink.Delete(rival("4", 1).Key())
			w.put(c.list...) // the same plan removes the owner
			w.wantOwner(c.want)
		})
	}
	w := newWorld(t, testOptions(), rival("4", 9))
	w.put(rival("5", 5)) // this Service does not become the owner
	w.sink.Delete(rival("4", 9).Key())
	w.put(rival("3", 3))
	w.wantOwner("3")
}

func uid(u string) func(*source.Service) { return func(s *source.Service) { s.UID = u } }

// The kind of an address takes precedence over age and current ownership: first a ClusterIP, then a load-balancer
// address, then an external IP. This order prevents another Service from taking a ClusterIP before the API server
// allocates it, or while an administrator deletes and recreates the Service that has it.
func TestAddressKindPrecedesAge(t *testing.T) {
	const addr = "10.96.0.55"
	of := func(name string, day int, kind func(*source.Service)) *source.Service {
		return rival(name, day, func(s *source.Service) { s.ExternalIPs = nil }, kind)
	}
	external := of("1", 1, func(s *source.Service) { s.ExternalIPs = ips(addr) })
	balancer := of("2", 2, func(s *source.Service) { s.LoadBalancerIPs = ips(addr) })
	cluster := of("3", 3, func(s *source.Service) { s.ClusterIPs = ips(addr) })
	wantOwner := func(w *world, want string) {
		t.Helper()
		got := ""
		for _, sp := range w.plan.Services {
			if slices.ContainsFunc(sp.Frontends, func(f plan.Frontend) bool { return f.Addr == ip(addr) }) {
				got += sp.Name.Name
			}
		}
		if got != want {
			t.Errorf("%s belongs to %q, want %q; problems %v", addr, got, want, w.problems)
		}
	}
	all := []source.Object{external, balancer, cluster}
	wantOwner(newWorld(t, testOptions(), all...), "3") // all requests in one plan

	w := newWorld(t, testOptions())
	for i, s := range all { // each request in a separate plan, from a Service that is younger than the owner
		w.put(s)
		wantOwner(w, string("123"[i]))
	}
	w.wantProblems("Service ns/1: spec.externalIPs: 10.96.0.55:80/TCP belongs to Service ns/3",
		"Service ns/2: status.loadBalancer.ingress: 10.96.0.55:80/TCP belongs to Service ns/3")
	w.remove(cluster)
	wantOwner(w, "2")
	w.put(cluster) // the Service is created again
	wantOwner(w, "3")

	// After a reload or a restart, the previous owner does not get the address back from a Service that requests it as
	// a higher-ranking kind of address.
	before := newWorld(t, testOptions(), external)
	for what, held := range map[string]tracker.Name{
		"external IP": {Namespace: "ns", Name: "1"}, "load-balancer address": {Namespace: "ns", Name: "2"},
	} {
		opts := testOptions()
		opts.SavedOwners = func() []source.Holding {
			return []source.Holding{{
				Addr: ip(addr), Protocol: plan.TCP, Port: 80, Namespace: held.Namespace,
				Name: held.Name,
			}}
		}
		w := newWorld(t, opts, all...)
		t.Log(what)
		wantOwner(w, "3")
		w.Planner, w.plan = New(testOptions()), before.plan
		w.replan()
		wantOwner(w, "3")
	}

	// Among requests for the same kind of address, the current owner keeps the address, even if other Services request
	// it as another kind.
	other := of("4", 1, func(s *source.Service) { s.ClusterIPs = ips(addr) })
	w = newWorld(t, testOptions(), cluster)
	w.put(external, other)
	wantOwner(w, "3")
}

// A NodePort or healthCheckNodePort has the same owner in all address families.
func TestNodePortOwnership(t *testing.T) {
	check := testService("check", func(s *source.Service) {
		s.ClusterIPs, s.ExternalLocal, s.HealthCheckNodePort = ips("10.96.0.3"), true, 30080
	})
	four := testService("four", func(s *source.Service) { s.Ports[0].NodePort = 30080 })
	six := testService("six", func(s *source.Service) { s.ClusterIPs, s.Ports[0].NodePort = ips("fd00:96::1"), 30080 })
	w := newWorld(t, testOptions(), four, six)
	w.wantProblems("Service ns/six: spec.ports[0].nodePort: port 30080/TCP belongs to Service ns/four")
	w.put(check)
	w.wantProblems("Service ns/check: spec.healthCheckNodePort: port 30080/TCP belongs to Service ns/four",
		"Service ns/six: spec.ports[0].nodePort: port 30080/TCP belongs to Service ns/four")
	w.remove(four)
	if len(w.plan.HealthChecks) != 1 { // "check" sorts before "six" by UID
		t.Errorf("health checks: %v", w.plan.HealthChecks)
	}
	w.put(testService("four", uid("0"), func(s *source.Service) { s.Ports[0].NodePort = 30080 }))
	w.Planner = New(testOptions())
	w.replan()
	w.wantProblems("Service ns/four: spec.ports[0].nodePort: port 30080/TCP belongs to Service ns/check",
		"Service ns/six: spec.ports[0].nodePort: port 30080/TCP belongs to Service ns/check")
}

// A Service owns no NodePort unless it has a ClusterIP in one of the host's families.
func TestNodePortNeedsClusterIPInFamily(t *testing.T) {
	opts := testOptions()
	opts.Families = []plan.Family{plan.IPv4}
	six := testService("a", func(s *source.Service) { s.ClusterIPs, s.Ports[0].NodePort = ips("fd00:96::1"), 30080 })
	w := newWorld(t, opts, six, testService("b", func(s *source.Service) { s.Ports[0].NodePort = 30080 }))
	w.wantFrontends("b", "ClusterIP 10.96.0.10:80", "NodePort port 30080/TCP")
	w.wantProblems()
}

// After a restart, the previous owners keep their contested addresses. Only a Planner's first plan uses
// Options.SavedOwners.
func TestOwnershipAfterRestart(t *testing.T) {
	w := newWorld(t, testOptions(), rival("5", 5))
	w.put(rival("1", 1), rival("9", 0))
	held := w.ContestedPorts()
	if want := []source.Holding{{
		Addr: ip("198.51.100.10"), Protocol: plan.TCP, Port: 80, Namespace: "ns",
		Name: "5",
	}}; !slices.Equal(held, want) {
		t.Fatalf("contested: %v", held)
	}
	opts := testOptions()
	opts.SavedOwners = func() []source.Holding { return held }
	w = newWorld(t, opts, rival("5", 5), rival("1", 1), rival("9", 0))
	w.wantOwner("5")
	w.put(rival("5", 5, func(s *source.Service) { s.ExternalIPs = nil }))
	w.wantOwner("1")
	w.put(&source.Node{Name: hostName, Zone: "elsewhere"}, rival("5", 5))
	w.wantOwner("1")

	newWorld(t, opts, rival("1", 1), rival("9", 0)).wantOwner("1") // the previous owner no longer exists
}

// After a reload, the plan in force determines the owner. If the plan in force lacks an address because the kernel
// rejected the frontend, the saved owner keeps the address.
func TestOwnershipAfterReload(t *testing.T) {
	old := newWorld(t, testOptions(), rival("5", 5))
	old.put(rival("1", 1), rival("9", 0))
	opts := testOptions()
	opts.SavedOwners = func() []source.Holding {
		return []source.Holding{{Addr: ip("198.51.100.10"), Protocol: plan.TCP, Port: 80, Namespace: "ns", Name: "9"}}
	}
	w := newWorld(t, opts, rival("5", 5), rival("1", 1), rival("9", 0))
	w.wantOwner("9")
	for _, c := range []struct {
		inForce *plan.Plan
		want    string
	}{{old.plan, "5"}, {&plan.Plan{Generation: 3, Node: old.plan.Node}, "9"}} {
		w.Planner, w.plan = New(opts), c.inForce
		w.replan()
		w.wantOwner(c.want)
	}
}
