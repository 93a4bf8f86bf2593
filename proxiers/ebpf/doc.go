// Package ebpf implements Services with the nft tables of package nftables, and adds BPF programs as shortcuts. When a
// socket on the host connects or sends to a Service, the socket programs replace the Service's address with an
// endpoint's address. The kernel then neither translates nor tracks the connection's packets. The tc program is
// optional (ebpf.tc). For each new TCP connection that arrives at a network device, the tc program chooses an endpoint
// and adds a connection-tracking entry. The kernel then translates the connection without evaluating any rules.
//
//   - connect, sendmsg: replace the Service's address with an endpoint's address
//   - recvmsg, getpeername: replace the endpoint's address with the Service's address
//   - release: forgets the endpoint of a closed socket
//   - tc: adds a connection-tracking entry with an endpoint for a connection's first packet
//
// The nft tables implement the whole plan, so nftables forwards all connections for which the BPF programs choose no
// endpoint. If the BPF programs fail, or another program removes them, nftables forwards all connections.
//
// # Which connections use the shortcut
//
// TCP and UDP sockets in the host's own network namespace use the shortcut for frontends that forward connections from
// the host and have neither source ranges nor session affinity. The daemon's own sockets (proxiers.OwnMark) and sockets
// bound to a device do not use the shortcut, and neither do sockets bound to an address if nftables would masquerade
// their connections. The addresses map never contains loopback addresses. render.go determines which frontends have a
// shortcut.
//
// # State
//
// Programs, maps and links are pinned, so a daemon restart interrupts no connection. After a restart, the daemon
// compares the maps with its plan and corrects the differences. bpf/maps.h documents the maps' contents. Prepare loads
// the programs and needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. The daemon only opens the pinned objects, and needs
// only CAP_NET_ADMIN (tested on Linux 6.1 and 7.2). If nf_nat is a module, Prepare also needs CAP_SYS_ADMIN to load the
// tc program. The tc program is attached to devices only while the daemon is running. Edgeway unpins the tc program if
// ebpf.tc is false.
//
// # Order
//
// Edgeway removes frontends from the maps before it changes the nft tables, and adds frontends afterwards. Edgeway
// never modifies a set of endpoints: a single map write switches a frontend to another set. Edgeway deletes an unused
// set after a delay, when no program can still be reading it.
//
// # Licence
//
// The C sources in bpf and the objects compiled from them are licensed under the GPL, version 2, because they call
// kernel functions that require this licence. The kernel runs the objects, which are not part of the program that loads
// them.
package ebpf
