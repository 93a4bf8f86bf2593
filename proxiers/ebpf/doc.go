// Package ebpf programs Services with nftables, as package dispatch describes it, and lays shortcuts over that. BPF programs send a
// socket of the host that connects, or sends, to a Service to an endpoint at once. No packet of such a connection is translated, and
// connection tracking has nothing to remember of it. Another program, at the network devices, tells connection tracking of a new connection
// from elsewhere and of its endpoint: the kernel translates what it tracks, and asks no rule.
//
//	connect, sendmsg          the Service's address ─► an endpoint
//	recvmsg, getpeername      the endpoint ─► the Service's address
//	a first packet            the connection ─► an entry of connection tracking, with an endpoint
//
// The table is complete: what the programs leave alone, nftables decides, so that every row of the plan holds with and without them.
// They may come and go, fail or be removed by another program, and connections are at worst slower.
//
// # What takes the shortcut
//
// TCP and UDP from sockets of the host's own network namespace, to a frontend that forwards what the host sends, has no source ranges
// and no session affinity. Not a socket that is bound to a device, or to an address that the endpoint may not see, as one would be
// that nftables masquerades, and not the daemon's own (proxiers.OwnMark). Loopback addresses are never in the maps. All of that is decided here, by render.
//
// # State
//
// Programs, maps and links are pinned, so that a restart of the daemon interrupts nothing: the next one compares the maps with its plan and
// corrects them. bpf/maps.h says what they hold. The privileged half is Component.Prepare, which needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN;
// the daemon opens what is pinned, for which CAP_NET_ADMIN is enough (tried on Linux 6.1 and 7.2). The program for packets needs CAP_SYS_ADMIN, too, where
// the functions of nf_nat are those of a module; without it the others are at work alone. It is at the devices while the daemon runs: what it does
// not do nftables does.
//
// # Order
//
// What leads somewhere is removed before what it leads to, and written after it: frontends leave the maps before nftables changes, and come
// into them after it. A set of endpoints is never altered; another one takes its place by one write for each frontend, and the old one goes when
// no program can be reading it any more.
//
// # Licence
//
// The C sources in bpf and the objects that are made of them are under the GPL, version 2, as they call functions of the
// kernel that ask for it. The kernel runs them; they are no part of the program that loads them.
package ebpf
