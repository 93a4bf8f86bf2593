// Package ipvs implements Services with IPVS, whose schedulers choose a connection's endpoint. An nftables table (see
// package nftables) and connection tracking implement all other features.
//
// # The path of a connection
//
// Each non-empty pool of a ServicePort has a virtual server at the ClusterIP (see allocator). The nftables table
// determines the verdict for the first packet, and sends each accepted packet to the virtual server, whichever frontend
// the packet is for. All frontends use the virtual servers at the ClusterIP, so external clients and pods can use
// different pools, and all frontends share session affinity. A new connection passes through four stages:
//
//   - nat: The nft rules translate the frontend's address to the virtual server's address.
//   - routing: Edgeway's routing rule and routes declare the virtual servers' addresses local for incoming packets.
//   - IPVS: IPVS chooses an endpoint, and causes connection tracking to expect replies from the endpoint.
//   - after IPVS: The nft rules reject packets that IPVS did not handle, and record clients with session affinity.
//
// From the second packet on, connection tracking alone translates the connection, because IPVS has changed the
// destination in the connection-tracking entry (tested on Linux 6.1, 6.12 and 7.2). IPVS still sees the replies, and
// uses them to count connections. Open connections therefore survive the removal of an endpoint, a Service or the
// backend, and Edgeway does not need to drain an endpoint. A new connection that reuses a source port traverses the
// rules again.
//
// # Session affinity
//
// Maps in the nftables table store each client's endpoint. Edgeway does not use IPVS persistence, because persistence
// does not remap ports. Furthermore, persistence outlasts its timeout by up to 15 minutes if IPVS still remembers one
// of the client's connections.
//
// # The host's own packets
//
// IPVS processes the host's own packets directly after the nat rules, without a route to the virtual server. Edgeway's
// routes apply only to incoming packets, so the source addresses of the host's own connections come from ordinary
// routes.
//
// # Ownership
//
// Edgeway marks its virtual servers with a persistence timeout, which has no effect without persistence. Edgeway marks
// its routes and routing rules with a protocol number. Objects without these marks belong to other programs, and
// Edgeway does not change them.
package ipvs
