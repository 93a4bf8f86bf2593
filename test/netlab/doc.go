// Package netlab builds small networks out of network namespaces, for tests that look at real packets.
//
// A Lab is a star with the node, the host under test, in the middle. The node routes for all other hosts: pods of the
// node, endpoints elsewhere, and clients outside. A veth pair connects each of these hosts to the node. All packets
// between hosts pass through the node, so replies take the same path back whether or not the source was rewritten, and
// the far end shows what the node did to a connection.
//
//	gateway (192.0.2.1) ── eth0 (192.0.2.10)  node  pod-a ── 10.244.1.2
//	                                                client-a ── 203.0.113.2
//
// A packet for an address that no host has ends at the gateway, which answers with an ICMP "unreachable".
//
// Each host is a process of the test binary in its own control group, so that a hook of a control group sees the
// sockets of one host. The process starts when the host needs its first socket. TestMain must call PeerMain, or
// Isolate, to serve these processes. A lab that cannot create control groups logs the reason; in continuous
// integration (CI=true), the lab fails.
//
// A lab has both address families. Tests need not wait for the network: addresses skip duplicate detection, neighbour
// entries are static, and ICMP errors are not rate-limited.
//
// The echo servers answer with their name and the peer address that they saw. Host.Connect reports the result of a
// connection: which server answered and which source it saw, or a refusal, a reset or no answer. SCTP uses raw sockets
// (one INIT, one INIT-ACK), because not every kernel has SCTP sockets, even where connection tracking and NAT support
// SCTP.
package netlab
