// Package netlab makes small networks out of network namespaces, for tests that look at real packets.
//
// A Lab is a star. In its middle is the node, the host under test, which routes for all others; around
// it are hosts, each on a veth pair of its own: pods of the node, endpoints elsewhere, clients outside.
// Everybody reaches everybody through the node alone, so a translated connection comes back by the way
// it went, whether its source was rewritten or not, and the far end tells what the node did to it.
//
//	gateway (192.0.2.1) ── eth0 (192.0.2.10)  node  pod-a ── 10.244.1.2
//	                                                client-a ── 203.0.113.2
//
// A packet for an address that nobody has ends at the gateway, which says so ("unreachable").
//
// Each host is a process of the test binary, started when its first socket is needed, in a control group of its own: a
// hook of a control group sees the sockets of one host. TestMain calls PeerMain, or Isolate, for it. A lab that may
// make no control groups says so in the log, and in continuous integration (CI=true) it fails.
//
// Both address families are there. Nothing needs to be waited for: addresses skip duplicate detection,
// neighbours are entered by hand, and ICMP errors are not rate-limited.
//
// The echo servers answer with their own name and the peer address that they saw; Host.Connect tells
// what became of a connection: served by whom and seen from where, refused, reset or lost. SCTP is
// spoken over raw sockets (one INIT, one INIT-ACK), because not every kernel has SCTP sockets while
// connection tracking and NAT of SCTP are there.
package netlab
