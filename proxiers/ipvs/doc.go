// Package ipvs programs Services with IPVS, whose schedulers choose the endpoint of a connection. All else is the work
// of a table of nftables, as package nftables describes it, and of connection tracking.
//
// # The way of a connection
//
// There is a virtual server for each ServicePort and pool in use, at its ClusterIP (see places). The table gives the
// verdict to the first packet, and sends what is to be forwarded on to the virtual server, whichever frontend it came
// by: so clients outside can have another pool than pods, and all frontends share the session affinity, which a server
// at each address could not give.
//
//	nat:   frontend ─► dnat to the virtual server
//	route: a rule and routes of our own make the virtual servers' addresses local, for packets that come in
//	IPVS:  chooses an endpoint, and has connection tracking expect the replies from there
//	after: what IPVS did not take is refused; clients of session affinity are learnt
//
// From the second packet on connection tracking translates the connection alone, as IPVS has altered where to (tried on
// Linux 6.1, 6.12 and 7.2). IPVS still sees the replies, by which it counts connections. So the removal of an endpoint,
// of a Service and of the backend leave connections alone that are open, nothing has to be drained, and a packet with a
// reused port meets the rules again.
//
// # Session affinity
//
// is in maps of the table, which know the endpoint of a client, and not IPVS' persistence: that outlives its time-out
// by as long as connections of the client are remembered, which is up to 15 minutes, and does not remap ports.
//
// # The host's own packets
//
// meet IPVS right behind the rules of nat, without being routed to the virtual server: the routes are for what comes in
// only, and the host's own connections have the source address that any other route gives them.
//
// # Ownership
//
// Virtual servers of ours have a time-out, which without persistence has no meaning and which the kernel gives back;
// routes and rules have a protocol number. What has not, belongs to somebody else, and is not touched.
package ipvs
