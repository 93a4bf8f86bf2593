// Package netlab creates small networks of network namespaces for tests with real packets.
//
// A Lab is a star network with the node, the host under test, at the center. The node routes the packets of all other
// hosts: pods on the node, endpoints on other nodes, and external clients. A veth pair connects each of the other hosts
// to the node. All packets between hosts pass through the node. Replies therefore return by the same path, even if the
// node did not rewrite the source address. The server's response shows how the node translated a connection.
//
//	gateway (192.0.2.1) ── eth0 (192.0.2.10)  node  pod-a ── 10.244.1.2
//	                                                client-a ── 203.0.113.2
//
// If no host has a packet's destination address, the packet reaches the gateway. The gateway responds with an ICMP
// "unreachable" message.
//
// Each host has its own process, which runs the test binary in the host's own control group. The kernel can therefore
// run a control-group hook for the sockets of a single host. The process starts when the host needs its first socket.
// TestMain must call PeerMain or Isolate, because these functions run the hosts' processes. If a lab cannot create
// control groups, it logs the reason. In continuous integration (CI=true), the test fails instead.
//
// A lab supports IPv4 and IPv6. A new lab is ready immediately: addresses skip duplicate address detection, neighbor
// entries are static, and ICMP errors have no rate limit.
//
// Each echo server responds with its name and the peer address that it sees. Host.Connect returns the server's name and
// the peer address, or reports a refusal, a reset or a timeout. For SCTP, the hosts use raw sockets (one INIT, one
// INIT-ACK), because some kernels support SCTP in connection tracking and NAT, but have no SCTP sockets.
package netlab
