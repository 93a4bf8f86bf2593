// Package nftables implements Services with nftables alone. The package maintains a table "edgeway" in the families ip
// and ip6. The rules of these tables choose the endpoint of a connection. The backends ipvs and ebpf build on this
// package: Schema describes a table that maps the frontend of a new connection to a verdict or to a destination
// address. With ipvs, the destination is a virtual server, which chooses the endpoint. Package nfttable makes the
// tables agree with the plan.
//
// # Rules
//
// Each table has fixed chains, fixed sets and maps, and a few dozen class chains. The number of chains does not depend
// on the number of Services, because a Service adds only elements to sets and maps.
//
//	nat prerouting, output ─► services ─┬─► @services   address . protocol . port ─► @classes ─► class chain
//	                                    ├─► @nodeports            protocol . port ─► @classes ─► class chain
//	                                    ├─► @loopback-addresses   a NodePort of UDP or SCTP: count, reject
//	                                    ├─► @cluster-ips    a ClusterIP's unused port: reject
//	                                    └─► @service-cidrs  an unallocated address, not of the host: drop
//	class chain: source ranges, then for each origin reject, drop, or a pick from @endpoints
//	nat postrouting: masquerade marked packets and hairpins
//
// A class specifies a verdict for each origin of connections, and the size of the pool if the verdict is to forward.
// The name of a class chain encodes the verdicts and the pool sizes. The rules of "addr-tcp-c3-c3m-l2" send connections
// from a pod to one of 3 endpoints of the cluster pool, and connections from the host likewise but masqueraded. All
// other connections go to one of 2 endpoints of the local pool. Each protocol has a map of endpoints, whose keys
// consist of an address, a port and a slot. The rules choose a random slot, and the slots of the local pool start at
// localSlots.
//
// The services and nodeports maps contain the number of a class (see nfttable), and the classes map contains its chain.
// Between the two lookups, the rules keep the number in the packet's priority, the only field that nft can set and look
// up apart from marks, which other programs may need. A class chain first resets the priority, so only the first packet
// of a connection to a Service loses a priority that another program set.
//
// In services and nodeports, the comment of an element is the name of the ServicePort, for operators who list the maps.
// The elements of the endpoint maps have no comment, because a full sync would have to read the comments of many
// endpoints. The keys of these elements contain the address of the Service.
//
// Only the first packet of a connection traverses the nat hooks, so the rules never affect an established connection. A
// reject rule in prerouting needs Linux 5.9.
//
// # Session affinity
//
// A ServicePort with session affinity has class chains of its own, which send known clients to their endpoints and all
// other clients to the plain class chain. For each pool and endpoint port, all frontends share a dynamic map from
// client to endpoint address. After a rule has chosen the endpoint, the learn map selects, by frontend and endpoint,
// the chain that adds the client to a dynamic map. The data of a dynamic map do not contain the port, because nft up to
// 1.0.6 aborts if a rule uses map data of more than 16 bytes.
package nftables
