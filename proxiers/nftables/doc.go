// Package nftables programs Services with nftables alone: a table "edgeway" in each of the families ip and ip6, whose
// rules pick the endpoint of a connection. The backends ipvs and ebpf build on it: Schema describes the path of a new
// connection through such a table, from the frontend that it meets to a verdict, or to an address that it is sent to.
// With ipvs that address is a virtual server, which chooses the endpoint. Package nfttable makes the tables agree with
// the plan.
//
// # Rules
//
// There is one table in each of the families ip and ip6. It holds a fixed set of chains, a
// fixed set of sets and maps, and a few dozen class chains, whatever the number of Services: all that
// belongs to a Service is an element of a set or a map.
//
//	nat prerouting, output ─► services ─┬─► @services   address . protocol . port ─► @classes ─► class chain
//	                                    ├─► @nodeports            protocol . port ─► @classes ─► class chain
//	                                    ├─► @loopback-addresses   a NodePort of UDP or SCTP: count, reject
//	                                    ├─► @cluster-ips    a ClusterIP's unused port: reject
//	                                    └─► @service-cidrs  an unallocated address, not of the host: drop
//	class chain: source ranges, then for each origin reject, drop, or a pick from @endpoints
//	nat postrouting: masquerade what is marked, and hairpins
//
// A class says what happens to connections of each origin, and the sizes of the pools that they are sent to. The name
// of a class chain spells it out: in "addr-tcp-c3-c3m-l2" a pod is sent to one of 3 endpoints of the cluster pool, the
// host likewise with its source masqueraded, and others to one of 2 of the local pool. Endpoints lie in one map for
// each protocol under address . port . slot; the rule picks a random slot, and the slots of the local pool start at
// localSlots.
//
// Maps services and nodeports give a class's number (see nfttable) and not its chain. Between the two maps it is
// kept in the packet's priority: the only place that nft can set and look up without taking a mark from others. A
// class chain begins by setting it to none, so only the first packet of a connection to a Service loses a priority
// that it had.
//
// The elements of these two maps have the name of their ServicePort as a comment, for those who list them. Endpoints,
// which are found by the same address, have none: they are many, and a full sync would read more.
//
// The verdict is given in the nat hooks, which see only the first packet of a connection: rules never
// touch an established connection. Rejecting in prerouting needs kernel 5.9.
//
// # Session affinity
//
// A ServicePort with session affinity has class chains of its own, which send the clients that they know to their
// endpoints and all others on to the plain class chain. They know them from a dynamic map from client to endpoint
// address for each pool and endpoint port, shared by all its frontends. The maps are filled once the endpoint is
// chosen: map learn leads from frontend and endpoint to the rule that learns the client. The port is not in the map's
// data because nft up to 1.0.6 aborts on map data of more than 16 bytes in a rule.
package nftables
