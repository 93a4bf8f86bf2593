// Package nftables implements Services with nftables alone. The package maintains a table named "edgeway" in each of
// the families ip and ip6. The rules in the tables choose a connection's endpoint. The ipvs and ebpf backends build on
// this package: Schema describes a table that maps a new connection's frontend to a verdict or to a destination
// address. In the ipvs backend, the destination is a virtual server, which chooses the endpoint. Package nfttable makes
// the tables match the plan.
//
// # Rules
//
// Each table has fixed chains, fixed sets and maps, and a few dozen class chains. The number of chains does not depend
// on the number of Services, because a Service adds only elements to sets and maps.
//
// At the nat hooks prerouting and output, the chain "services" looks up the destination of a new connection:
//
//   - @services, by address, protocol and port: leads to @classes, and then to a class chain
//   - @nodeports, by protocol and port: leads to @classes, and then to a class chain
//   - @loopback-addresses: counts and rejects connections to UDP and SCTP NodePorts
//   - @cluster-ips: rejects connections to a ClusterIP's unused port
//   - @service-cidrs: drops packets to an unallocated address that does not belong to the host
//
// A class chain drops packets from outside the source ranges. For each remaining packet, the class chain rejects or
// drops the packet, or chooses an endpoint from @endpoints, depending on the connection's origin. At the nat hook
// postrouting, the rules masquerade marked packets and hairpin connections.
//
// A class specifies a verdict for each origin and, if the verdict is Forward, the pool size. The name of a class chain
// encodes the verdicts and the pool sizes. For example, the chain "addr-tcp-c3-c3m-l2" sends connections from pods and
// from the host to one of 3 endpoints in the cluster pool, and masquerades the host's connections. The chain sends all
// other connections to one of 2 endpoints in the local pool. Each protocol has an endpoint map, whose keys consist of
// an address, a port and a slot. The rules choose a random slot, and the local pool's slots start at firstLocalSlot.
//
// The services and nodeports maps contain class numbers (see nfttable), and the classes map contains the chain for each
// number. Between the two lookups, the rules keep the number in the packet's priority. The priority is the only field
// that nft can both set and look up, apart from marks, which other programs may need. A class chain first resets the
// priority, so only the first packet of a connection to a Service loses a priority that another program has set.
//
// In the services and nodeports maps, each element's comment is the name of its ServicePort, for operators who list the
// maps. Elements in the endpoint maps have no comments, because a full sync would have to read all the comments. The
// keys in the endpoint maps contain the Service address.
//
// Only the first packet of a connection traverses the nat hooks, so the rules never affect an established connection. A
// reject rule in prerouting needs Linux 5.9.
//
// # Session affinity
//
// A ServicePort with session affinity has its own class chains, which send known clients to their endpoints and all
// other clients to the plain class chain. For each pool and endpoint port, all frontends share a dynamic map from
// client to endpoint address. After a rule has chosen the endpoint, the learn map selects, by frontend and endpoint,
// the chain that adds the client to a dynamic map. A dynamic map's data does not contain the port, because nft up to
// 1.0.6 aborts if a rule uses map data longer than 16 bytes.
package nftables
