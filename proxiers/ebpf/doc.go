// Package ebpf programs Services with nftables, as package nftables describes it, and adds BPF programs as shortcuts.
// The programs for sockets give a socket of the host that connects, or sends, to a Service the address of an endpoint.
// The kernel then translates no packet of the connection and does not track it. The tc program is optional (ebpf.tc).
// At the network devices, it writes a new TCP connection from elsewhere and its endpoint into connection tracking: the
// kernel translates the connection without asking a rule.
//
//	connect, sendmsg          the Service's address ─► an endpoint
//	recvmsg, getpeername      the endpoint ─► the Service's address
//	release                   the socket is closed, forget its endpoint
//	tc: a first packet        the connection ─► an entry of connection tracking, with an endpoint
//
// The nft tables are complete and serve all that the programs do not, so every row of the plan holds with and without
// the programs. When the programs fail, or another program removes them, connections are slower at worst.
//
// # What takes the shortcut
//
// TCP and UDP from sockets of the host's own network namespace, to a frontend that forwards what the host sends, has no
// source ranges and no session affinity. Not a socket that is bound to a device, or to an address that the endpoint may
// not see, as one would be that nftables masquerades, and not the daemon's own (proxiers.OwnMark). Loopback addresses
// are never in the maps. All of that is decided here, by render.
//
// # State
//
// Programs, maps and links are pinned, so that a restart of the daemon interrupts nothing: the next one compares the
// maps with its plan and corrects them. bpf/maps.h says what they hold. The privileged half is Prepare, which
// needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. The daemon opens the pins, for which CAP_NET_ADMIN is enough (tried on
// Linux 6.1 and 7.2). To load the tc program, Prepare also needs CAP_SYS_ADMIN where nf_nat is a module. The tc program
// is at the devices while the daemon runs, and is unpinned when the setting is off.
//
// # Order
//
// Frontends leave the maps before nftables changes and enter them afterwards. A set of endpoints is never altered: one
// write for each frontend replaces it by another set, and the old one is deleted when no program can be reading it any
// more.
//
// # Licence
//
// The C sources in bpf and the objects compiled from them are under the GPL, version 2, because they call kernel
// functions that require it. The kernel runs them; they are not part of the program that loads them.
package ebpf
