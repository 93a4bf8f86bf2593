/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs and the daemon share. All addresses have 16 bytes, those of IPv4 as ::ffff:a.b.c.d; ports are in network order.
 *
 *	frontends   where to and from whom ─► the set to choose from, or "nftables decides"
 *	slots       set and number         ─► an endpoint
 *	members     service and endpoint   ─► it still serves (UDP alone)
 *	addresses   an address of the host ─► what it is good for
 *	taken       service and kind       ─► its connections so far
 *
 * A set is never altered: another one is written, the frontend gets its number by one write, and the old one is deleted a
 * second later. A frontend that is not there is nftables' business, as is all that a program cannot do.
 *
 * Whoever changes a type here changes the layout's number in Go: the maps outlive the daemon.
 */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

struct address {
	union {
		__u8 byte[16];
		__u32 word[4];
	};
};

/* As netinet/in.h has more than the BPF target can read. */
enum { AF_INET = 2, AF_INET6 = 10, IPPROTO_TCP = 6, IPPROTO_UDP = 17, IPPROTO_MPTCP = 262 };

/* The origins of plan.Origin. The programs for sockets ask for that of the host, the one for packets for the others. */
enum origin { FROM_POD, FROM_HOST, FROM_OUTSIDE };

/* A NodePort has no address: 0.0.0.0 or ::, and is asked for after the address itself. */
struct frontend_key {
	struct address addr;
	__be16 port;
	__u8 protocol;
	__u8 origin;
};

enum frontend_flags {
	MASQUERADED = 1, /* the endpoint must see an address of the host */
	LEFT = 2,        /* nftables decides; the counter for it is in the flags' second byte */
	PROBE = 4,       /* the daemon's own look at whether all works: not counted */
	KIND = 3u << 30, /* the frontend's kind, also in the keys of the map taken */
};

struct frontend {
	__u32 service;
	__u32 set;
	__u32 count; /* slots of the set */
	__u32 flags;
};

struct slot_key {
	__u32 set;
	__u32 slot;
};

enum endpoint_flags { LOCAL = 1 /* on this host: what it sends to itself is masqueraded */ };

struct endpoint {
	struct address addr;
	__be16 port;
	__u16 flags;
};

struct member_key {
	struct address addr;
	__u32 service;
	__be16 port;
	__u16 zero;
};

enum address_flags {
	NODEPORTS = 1, /* accepts NodePorts */
	SOURCE = 2,    /* a socket that is bound to it speaks for the host */
};

struct settings {
	__u64 netns;    /* the cookie of the host's network namespace; 0: the programs for sockets do nothing */
	__u32 own_mark; /* of the daemon's connections to its API server */
	__u32 packets;  /* how many connections the tc program may begin each second on a processor; 0: it does nothing */
	__be32 source;  /* the IPv4 address to masquerade with at devices that have none */
	__u32 flags;
};

enum settings_flags {
	MARK_RULES = 1,    /* routes depend on packet marks, which rules of nftables may set later */
	TRACKING_FULL = 2, /* connection tracking is half full */
};

/* The endpoint of a connected UDP socket. When the endpoint is gone, the daemon destroys the socket. */
struct connection {
	struct address addr;
	__u32 service;
	__be16 port;
	__u16 zero;
};

enum counter {
	CONNECTED_TCP,
	CONNECTED_UDP,
	SENT_UDP,     /* first datagrams of a socket to a frontend */
	PACKETS_TCP,  /* connections from elsewhere */
	LEFT_RANGES,  /* the frontend has source ranges */
	LEFT_AFFINITY,
	LEFT_VERDICT, /* nothing to forward to */
	LEFT_ROOM,    /* the maps are full */
	LEFT_BOUND,   /* the socket has an address that the endpoint may not see, or a device */
	LEFT_CROWDED, /* one socket, and more frontends than can be told apart in the replies */
	LEFT_STORAGE, /* the kernel gives no room to remember where the socket wanted to */
	LEFT_RACE,    /* the endpoints were replaced in this moment */
	LEFT_ROUTE,   /* the address to masquerade with is not known */
	LEFT_TRACKING, /* connection tracking is full, or refuses */
	LEFT_RATE,    /* more new connections than settings.packets, or TRACKING_FULL */
	COUNTERS,
};

/* Without PREALLOC the memory of an element is there only when the element is. */
#define HASH(name, k, v, max)                      \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_HASH);           \
		__uint(map_flags, BPF_F_NO_PREALLOC);      \
		__uint(max_entries, max);                  \
		__uint(pinning, LIBBPF_PIN_BY_NAME);       \
		__type(key, k);                            \
		__type(value, v);                          \
	} name SEC(".maps")

/* The daemon sizes these, but for addresses. */
HASH(frontends, struct frontend_key, struct frontend, 1);
HASH(slots, struct slot_key, struct endpoint, 1);
HASH(members, struct member_key, __u8, 1);
HASH(addresses, struct address, __u8, 4096);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct settings);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &which);

	if (n)
		(*n)++;
}

/*
 * Connections by service number and frontend kind (KIND). The first connection creates the element, and the daemon deletes the
 * element with the service.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u64);
} taken SEC(".maps");

/*
 * count_taken counts a connection that was sent to an endpoint of the frontend. The addition is atomic, because the tc program can
 * interrupt a program for sockets on the same processor.
 */
static __always_inline void count_taken(enum counter which, const struct frontend *f)
{
	__u32 key = f->service | (f->flags & KIND);
	__u64 *n = bpf_map_lookup_elem(&taken, &key), zero = 0;

	count(which);
	if (!n) {
		bpf_map_update_elem(&taken, &key, &zero, BPF_NOEXIST); /* fails if another processor was first */
		n = bpf_map_lookup_elem(&taken, &key);
	}
	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline void from_v4(struct address *a, __u32 ip)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = bpf_htonl(0xffff);
	a->word[3] = ip;
}

static __always_inline int is_v4(const struct address *a)
{
	return a->word[0] == 0 && a->word[1] == 0 && a->word[2] == bpf_htonl(0xffff);
}

/* Not memcmp: clang makes a call of it that nobody can answer. */
static __always_inline int same(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] && a->word[3] == b->word[3];
}

/* The frontend itself, else the NodePort at an address that accepts them. */
static __always_inline struct frontend *find_frontend(struct frontend_key *key)
{
	struct frontend *f = bpf_map_lookup_elem(&frontends, key);
	struct frontend_key port = { .port = key->port, .protocol = key->protocol, .origin = key->origin };
	__u8 *flags;

	if (f)
		return f;
	flags = bpf_map_lookup_elem(&addresses, &key->addr);
	if (!flags || !(*flags & NODEPORTS))
		return 0;
	if (is_v4(&key->addr))
		from_v4(&port.addr, 0);
	return bpf_map_lookup_elem(&frontends, &port);
}

/* One of the endpoints of a frontend. */
static __always_inline struct endpoint *pick(const struct frontend *f)
{
	struct slot_key slot = { .set = f->set };
	__u32 n = f->count;

	if (!n)
		return 0;
	slot.slot = bpf_get_prandom_u32() % n;
	return bpf_map_lookup_elem(&slots, &slot);
}
