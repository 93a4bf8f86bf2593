// Package nftables programs Services with nftables alone. The package maintains a table "edgeway" in each of the
// families ip and ip6. The rules of these tables choose the endpoint of a connection. The backends ipvs and ebpf
// build on this package: Schema describes the path of a new connection through such a table, from its frontend to a
// verdict or to the address to which the connection is sent. With ipvs, the address is that of a virtual server,
// which chooses the endpoint. Package nfttable makes the tables agree with the plan.
//
// # Rules
//
// Each table holds fixed chains, fixed sets and maps, and a few dozen class chains. The number of chains does not
// depend on the number of Services, because each Service consists of elements of sets and maps.
//
//	nat prerouting, output ─► services ─┬─► @services   address . protocol . port ─► @classes ─► class chain
//	                                    ├─► @nodeports            protocol . port ─► @classes ─► class chain
//	                                    ├─► @loopback-addresses   a NodePort of UDP or SCTP: count, reject
//	                                    ├─► @cluster-ips    a ClusterIP's unused port: reject
//	                                    └─► @service-cidrs  an unallocated address, not of the host: drop
//	class chain: source ranges, then for each origin reject, drop, or a pick from @endpoints
//	nat postrouting: masquerade marked packets and hairpins
//
// A class specifies the verdict for connections of each origin, and the sizes of the pools to which the connections
// are sent. The name of a class chain contains this specification. In "addr-tcp-c3-c3m-l2", connections of a pod are
// sent to one of 3 endpoints of the cluster pool, connections of the host likewise but masqueraded, and all others to
// one of 2 endpoints of the local pool. One map for each protocol holds the endpoints under the key address . port .
// slot. The rule chooses a random slot, and the slots of the local pool start at localSlots.
//
// The services and nodeports maps contain the number of a class (see nfttable) instead of the class's chain. Between
// the lookups of the number and of the chain, the rules keep the number in the packet's priority, the only field that
// nft can set and look up without using a mark that another program may need. A class chain first resets the
// priority, so only the first packet of a connection to a Service loses the priority that another program set.
//
// The elements of services and nodeports have the name of their ServicePort as a comment, for operators who list the
// maps. The elements of endpoints have no comment, because there are many endpoints and a full sync would have to
// read the comments. The keys of these elements contain the address of the Service.
//
// The nat hooks see only the first packet of a connection, so the rules never affect an established connection.
// Rejecting in prerouting needs Linux 5.9.
//
// # Session affinity
//
// A ServicePort with session affinity has class chains of its own, which send known clients to their endpoints and
// all other clients to the plain class chain. For each pool and endpoint port there is a dynamic map from client to
// endpoint address, which all frontends share. The maps are filled after the endpoint has been chosen: the learn map
// leads from frontend and endpoint to the rule that adds the client. The map's data do not contain the port, because
// nft up to 1.0.6 aborts if a rule uses map data of more than 16 bytes.
package nftables
