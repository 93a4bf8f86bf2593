// Package netlab creates small networks of network namespaces, for tests with real packets.
//
// A Lab is a star with the node, the host under test, in the middle. The node routes the packets of all other hosts:
// pods of the node, endpoints on other nodes, and external clients. A veth pair connects each of these hosts to the
// node. All packets between hosts pass through the node, so replies return by the same path, even if the node did not
// rewrite the source. The server's response shows how the node translated a connection.
//
//	gateway (192.0.2.1) ── eth0 (192.0.2.10)  node  pod-a ── 10.244.1.2
//	                                                client-a ── 203.0.113.2
//
// If no host has a packet's destination address, the packet reaches the gateway, which responds with an ICMP
// "unreachable".
//
// Each host is a process of the test binary in its own control group, so that a control-group hook applies to the
// sockets of one host. The process starts when the host needs its first socket. TestMain must call PeerMain, or
// Isolate, to serve these processes. If a lab cannot create control groups, it logs the reason, or fails the test in
// continuous integration (CI=true).
//
// A lab has both address families. A lab is ready immediately: addresses skip duplicate detection, neighbour entries
// are static, and ICMP errors are not rate-limited.
//
// The echo servers respond with their name and the peer address that they see. Host.Connect reports the server's name
// and the source address that the server saw, or a refusal, a reset or a timeout. SCTP uses raw sockets (one INIT, one
// INIT-ACK), because not every kernel has SCTP sockets, even where connection tracking and NAT support SCTP.
package netlab
