// Package e2e tests the edgeway program from the outside. The real binary runs on the node of a test/netlab lab and
// reads from a real kube-apiserver over a link that a test can cut and stall. The tests inspect client connections, the
// daemon's HTTP responses and the output of the edgeway commands.
//
//	kube-apiserver ··link·· gateway ── node (edgeway run) ─┬─ ep1, ep2     endpoints
//	                                                       └─ client       outside
//
// Every test has its own network. All tests share the control plane, so each test gives its objects unique names and
// removes the objects at the end. Without root, the tests fail instead of being skipped.
package e2e
