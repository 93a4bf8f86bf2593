// Package ipvs programs Services with IPVS, whose schedulers choose the endpoint of a connection. An nftables table, as
// package nftables describes it, and connection tracking do everything else.
//
// # The path of a connection
//
// Each ServicePort and pool in use has a virtual server at its ClusterIP (see places). The table decides the verdict
// for the first packet, and forwards accepted packets to the virtual server, whichever frontend they arrived at. So
// clients outside can use a different pool than pods, and all frontends share the session affinity, which would be
// impossible with a server at each address.
//
//	nat:   frontend ─► dnat to the virtual server
//	route: a rule and routes of our own make the virtual servers' addresses local, for incoming packets
//	IPVS:  chooses an endpoint, and has connection tracking expect the replies from there
//	after: packets that IPVS did not handle are rejected; clients with session affinity are recorded
//
// From the second packet on, connection tracking translates the connection alone, because IPVS has changed the
// destination in its entry (tested on Linux 6.1, 6.12 and 7.2). IPVS still sees the replies, from which it counts
// connections. So open connections survive the removal of an endpoint, of a Service and of the backend, nothing has to
// be drained, and a packet with a reused port is checked by the rules again.
//
// # Session affinity
//
// The maps of the table implement session affinity: they store the endpoint of each client. IPVS' persistence is not
// used: it outlives its timeout while IPVS remembers a connection of the client, up to 15 minutes, and does not remap
// ports.
//
// # The host's own packets
//
// The host's own packets reach IPVS directly after the nat rules, without being routed to the virtual server. The
// routes apply only to incoming packets, so the host's own connections have the source address of an ordinary route.
//
// # Ownership
//
// Edgeway's virtual servers have a timeout, which has no meaning without persistence and which the kernel returns.
// Edgeway's routes and rules have a protocol number. Objects without these marks belong to other programs and are not
// touched.
package ipvs
