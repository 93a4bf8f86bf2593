package planner

import (
	"runtime"
	"testing"
)

// While the host has a problem, a change to one Service must not cause the planner to copy the problems of all
// Services.
func TestHostProblemDoesNotCopyServiceProblems(t *testing.T) {
	without, with := allocatedBytes(t, false), allocatedBytes(t, true)
	if t.Logf("%d bytes for one change, %d with a problem of the host", without, with); with > 2*without {
		t.Errorf("one change takes %d bytes, and %d with a problem of the host", without, with)
	}
}

// allocatedBytes returns the number of bytes that the planner allocates when one EndpointSlice changes while each
// of 10,000 Services has a problem.
func allocatedBytes(t *testing.T, ofHost bool) uint64 {
	t.Helper()
	const services, changes = 10_000, 20
	c := newCrowd(services)
	for i := range services {
		s := crowdService(i)
		s.ExternalIPs = ips("198.51.100.1")
		c.sink.Upsert(s)
	}
	opts, host := testOptions(), testHost()
	opts.Proxy.AllowExternalIPs.Prefixes = nil
	for i := range host.Addrs { // without a primary address, "primary" selects no address
		host.Addrs[i].Primary = host.Addrs[i].Primary && !ofHost
	}
	planner := New(opts)
	prev, problems := planner.Plan(c.snapshot(), host, nil)
	if got := len(problems) > services; got != ofHost {
		t.Fatalf("%d problems", len(problems))
	}
	var bytes uint64
	for i := range changes {
		c.sink.Upsert(crowdSlice(50, 4+i%2))
		snap := c.snapshot()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		prev, _ = planner.Plan(snap, host, prev)
		runtime.ReadMemStats(&after)
		bytes += (after.TotalAlloc - before.TotalAlloc) / changes
	}
	return bytes
}
