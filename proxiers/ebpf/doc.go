// Package ebpf programs Services with the nft tables of package nftables, and adds BPF programs as shortcuts. When a
// socket of the host connects or sends to a Service, the socket programs replace the Service's address with the address
// of an endpoint. The kernel then neither translates nor tracks the packets of the connection. The tc program is
// optional (ebpf.tc). For each new TCP connection that arrives at a network device, the tc program adds an entry with
// an endpoint to connection tracking. The kernel then translates the connection without evaluating a rule.
//
//	connect, sendmsg          the Service's address ─► an endpoint
//	recvmsg, getpeername      the endpoint ─► the Service's address
//	release                   a closed socket ─► its endpoint is forgotten
//	tc: a first packet        the connection ─► an entry of connection tracking, with an endpoint
//
// The nft tables implement the whole plan and serve all connections that the BPF programs do not serve. If the BPF
// programs fail or are removed, connections still work, but are slower.
//
// # Which connections take the shortcut
//
// The shortcut serves TCP and UDP from sockets of the host's own network namespace, to a frontend that forwards traffic
// from the host and has neither source ranges nor session affinity. The shortcut does not serve the daemon's own
// sockets (proxiers.OwnMark), sockets that are bound to a device, or sockets that are bound to an address that the
// endpoint must not see, for example because nftables would masquerade it. Loopback addresses are never in the maps.
// render.go decides which sockets take the shortcut.
//
// # State
//
// Programs, maps and links are pinned, so that a restart of the daemon interrupts nothing: the next daemon compares the
// maps with its plan and corrects them. bpf/maps.h documents the contents of the maps. Prepare loads the programs and
// needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. The daemon only opens the pins and needs CAP_NET_ADMIN (tested on Linux
// 6.1 and 7.2). To load the tc program, Prepare also needs CAP_SYS_ADMIN where nf_nat is a module. The tc program is
// attached to the devices only while the daemon runs. Its pin is removed when ebpf.tc is false.
//
// # Order
//
// Edgeway removes frontends from the maps before nftables changes, and adds frontends afterwards. A set of endpoints is
// never modified: one write to a map switches a frontend to another set. Edgeway deletes the old set when no program
// can still be reading the set.
//
// # Licence
//
// The C sources in bpf and the objects compiled from them are under the GPL, version 2, because they call kernel
// functions that require this licence. The kernel runs the objects. The objects are not part of the program that loads
// them.
package ebpf
