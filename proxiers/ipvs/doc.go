// Package ipvs implements Services with IPVS, whose schedulers choose a connection's endpoint. An nftables table (see
// package nftables) and connection tracking implement all other features.
//
// # The path of a connection
//
// Each non-empty pool of a ServicePort has a virtual server at the ClusterIP (see allocator). The nftables table
// determines the verdict for the first packet, and sends packets that it accepts for any frontend to the virtual
// server. Unlike with a virtual server at each address, external clients can use a different pool than pods, and all
// frontends share the session affinity.
//
//	nat:   frontend ─► dnat to the virtual server
//	route: Edgeway's rule and routes make the virtual servers' addresses local for incoming packets
//	IPVS:  chooses an endpoint, and has connection tracking expect the replies from the endpoint
//	after: the rules reject packets that IPVS did not handle, and record clients with session affinity
//
// From the second packet on, connection tracking alone translates the connection, because IPVS has changed the
// destination in the connection-tracking entry (tested on Linux 6.1, 6.12 and 7.2). IPVS still sees the replies, and
// uses them to count connections. Open connections therefore survive the removal of an endpoint, a Service or the
// backend, and Edgeway does not need to drain an endpoint. A new connection that reuses a source port traverses the
// rules again.
//
// # Session affinity
//
// Maps in the nftables table store each client's endpoint. Edgeway does not use IPVS persistence, which does not remap
// ports and which lasts longer than its timeout while IPVS remembers one of the client's connections, up to 15 minutes.
//
// # The host's own packets
//
// IPVS processes the host's own packets directly after the nat rules, without a route to the virtual server. Edgeway's
// routes apply only to incoming packets, so the host's own connections have the source address of an ordinary route.
//
// # Ownership
//
// Edgeway marks its virtual servers with a persistence timeout, which has no effect without persistence, and its routes
// and routing rules with a protocol number. Objects without these marks belong to other programs, and Edgeway does not
// change them.
package ipvs
