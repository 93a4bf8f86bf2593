// Package ipvs programs Services with IPVS, whose schedulers choose the endpoint of a connection. An nftables table
// (see package nftables) and connection tracking do everything else.
//
// # The path of a connection
//
// Each ServicePort and pool in use has a virtual server at its ClusterIP (see places). The table determines the
// verdict for the first packet, and forwards accepted packets of all frontends to the virtual server. So external
// clients can use a different pool than pods, and all frontends share the session affinity, which would be impossible
// with a server at each address.
//
//	nat:   frontend ─► dnat to the virtual server
//	route: Edgeway's rule and routes make the virtual servers' addresses local for incoming packets
//	IPVS:  chooses an endpoint, and has connection tracking expect the replies from there
//	after: packets that IPVS did not handle are rejected; clients with session affinity are recorded
//
// From the second packet on, connection tracking alone translates the connection, because IPVS has changed the
// destination in its entry (tested on Linux 6.1, 6.12 and 7.2). IPVS still sees the replies, and counts connections
// by them. So open connections survive the removal of an endpoint, a Service or the backend, and nothing has to be
// drained. The rules check a packet with a reused port again.
//
// # Session affinity
//
// The maps of the table implement session affinity: they store the endpoint of each client. Edgeway does not use the
// persistence of IPVS: persistence outlives its timeout while IPVS remembers a connection of the client, up to 15
// minutes, and does not remap ports.
//
// # The host's own packets
//
// The host's own packets reach IPVS directly after the nat rules, without being routed to the virtual server. The
// routes apply only to incoming packets, so the host's own connections have the source address of an ordinary route.
//
// # Ownership
//
// Edgeway marks its virtual servers with a timeout, which has no effect without persistence and which the kernel
// returns. Edgeway marks its routes and rules with a protocol number. Edgeway does not touch objects without these
// marks, which belong to other programs.
package ipvs
