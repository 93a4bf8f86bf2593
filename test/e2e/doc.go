// Package e2e tests the program edgeway as a whole, from the outside: the real binary runs on the
// node of a test/netlab, reads a real kube-apiserver over a link that can be cut and stalled, and is
// judged by the connections that real clients make, by its HTTP endpoints and by its commands.
//
//	kube-apiserver ··link·· gateway ── node (edgeway run) ─┬─ ep1, ep2     endpoints
//	                                                       └─ client       outside
//
// Every test has its own network; the control plane is shared, so tests name their objects apart and
// remove them. The tests need root; without it they fail, they are never skipped.
package e2e
