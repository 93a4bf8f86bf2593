package planner

import (
	"slices"
	"testing"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
)

func TestServiceThatPanicsIsLeftOut(t *testing.T) {
	for name, tune := range map[string]func(*Options){
		"plan": func(o *Options) {
			o.BeforeService = func(key source.Key) {
				if key.Name == "bad" {
					panic("on purpose")
				}
			}
		},
		"claims": func(o *Options) {
			o.beforeRequests = func(s *source.Service) {
				if s.Name == "bad" {
					panic("on purpose")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			tune(&opts)
			service := func(name, clusterIP string, nodePort uint16) *source.Service {
				return testService(name, func(s *source.Service) {
					s.ClusterIPs = ips(clusterIP)
					s.Ports[0].NodePort = nodePort
				})
			}
			w := newWorld(t, opts, service("bad", "10.96.0.66", 30666), service("good", "10.96.0.2", 30002))
			check := func() {
				t.Helper()
				if got := w.frontendsOf("good"); len(got) != 2 {
					t.Errorf("the other Service has %v", got)
				}
				if got := w.frontendsOf("bad"); len(got) != 0 {
					t.Errorf("the Service that panics has %v", got)
				}
				named := func(q fault.Fault) bool { return q.Object.Name == "bad" }
				if len(w.problems) == 0 || slices.ContainsFunc(w.problems,
					func(q fault.Fault) bool { return !named(q) }) {
					t.Errorf("problems %v", w.problems)
				}
			}
			check()
			w.put(service("good", "10.96.0.3", 30003))
			check()
		})
	}
}

// With a memory limit, the planner computes the size of each Service, and a nil EndpointSlice causes that computation
// to panic.
func TestServiceThatCannotBeMeasuredIsLeftOut(t *testing.T) {
	opts := testOptions()
	opts.Budget = Budget{Limit: 1 << 30, Port: 1, Address: 1, Endpoint: 1}
	good := testService("good", func(s *source.Service) { s.ClusterIPs = ips("10.96.0.2") })
	next, problems := New(opts).Plan(&tracker.Snapshot{All: true, Generation: 1, Services: []*tracker.Service{
		{Spec: testService("bad"), Slices: []*source.EndpointSlice{nil}}, {Spec: good},
	}}, testHost(), nil)
	if len(next.Services) != 1 || next.Services[0].Name.Name != "good" {
		t.Errorf("the plan contains %v", next.Services)
	}
	if len(problems) != 1 || problems[0].Object.Name != "bad" {
		t.Errorf("problems %v", problems)
	}
}
