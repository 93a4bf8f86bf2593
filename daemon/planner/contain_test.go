package planner

import (
	"slices"
	"testing"

	"edgeway/daemon/source"
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
				if len(w.problems) == 0 || slices.ContainsFunc(w.problems, func(q fault.Fault) bool { return !named(q) }) {
					t.Errorf("problems %v", w.problems)
				}
			}
			check()
			w.put(service("good", "10.96.0.3", 30003))
			check()
		})
	}
}
