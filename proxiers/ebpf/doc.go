// Package ebpf programs Services with nftables, as package nftables describes it, and adds BPF programs as shortcuts.
// When a socket of the host connects or sends to a Service, the socket programs replace the address with an endpoint's.
// The kernel then neither translates nor tracks the packets of the connection. The tc program is optional (ebpf.tc). At
// the network devices, the tc program writes a new TCP connection from elsewhere and its endpoint into connection
// tracking, so that the kernel translates the connection without evaluating a rule.
//
//	connect, sendmsg          the Service's address ─► an endpoint
//	recvmsg, getpeername      the endpoint ─► the Service's address
//	release                   the socket is closed, forget its endpoint
//	tc: a first packet        the connection ─► an entry of connection tracking, with an endpoint
//
// The nft tables are complete and serve all connections that the programs do not serve, so the whole plan is in force
// with and without the programs. If the programs fail, or another program removes them, connections are at worst
// slower.
//
// # What takes the shortcut
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
// maps with its plan and corrects them. bpf/maps.h documents the contents of the maps. The privileged half is Prepare,
// which needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. The daemon opens the pins, for which CAP_NET_ADMIN is enough
// (tested on Linux 6.1 and 7.2). To load the tc program, Prepare also needs CAP_SYS_ADMIN where nf_nat is a module. The
// tc program is attached to the devices while the daemon runs, and is unpinned when the setting is off.
//
// # Order
//
// Frontends leave the maps before nftables changes and enter them afterwards. A set of endpoints is never modified: one
// write for each frontend switches the frontend to another set, and the old set is deleted when no program can still be
// reading it.
//
// # Licence
//
// The C sources in bpf and the objects compiled from them are under the GPL, version 2, because they call kernel
// functions that require this licence. The kernel runs the objects; they are not part of the program that loads them.
package ebpf
