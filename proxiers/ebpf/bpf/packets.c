//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tc program, at the network devices by which connections come in. For the first packet of a TCP connection from elsewhere to a Service
 * it adds the connection and an endpoint to connection tracking, which translates this packet and all others of the connection. The rules
 * of nftables are not asked about connections that are tracked. They serve all that this program leaves: UDP, too, where each datagram
 * of a connection would cost a lookup here (it has no SYN).
 */
#include "tracking.h"

/* For bpf_get_prandom_u32 and others. */
char terms[] SEC("license") = "GPL";

enum { NEXT = -1 /* TC_ACT_UNSPEC: continue with other programs at the device, then with the kernel */ };

enum { FOR_THE_HOST = 0 /* PACKET_HOST: not for a bridge or another device above this one */ };

/* Flags of bpf_fib_lookup that older headers lack. */
enum { FIB_SKIP_NEIGHBOUR = 1 << 2, FIB_SOURCE = 1 << 4 };

/* A packet is from a pod if its source is in one of these ranges, or if it comes in by one of these devices. */
struct pod_range {
	__u32 length;
	struct address addr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct pod_range);
	__type(value, __u8);
} pod_ranges SEC(".maps");

HASH(pod_devices, __u32, __u8, 65536);

/* IPv4 addresses that the kernel masquerades with: not those that are valid on one link only. */
HASH(sources, __be32, __u8, 4096);

/* How many connections a processor may begin now. */
struct bucket {
	__u64 at; /* when the last token came */
	__u64 tokens;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

static __always_inline int is_from_pod(struct __sk_buff *skb, const struct packet *p)
{
	struct pod_range range = { .length = 128, .addr = p->from };
	__u32 device = skb->ingress_ifindex;

	return bpf_map_lookup_elem(&pod_ranges, &range) || bpf_map_lookup_elem(&pod_devices, &device);
}

/* Returns the frontend of a packet. Most packets have none. One without a frontend from outside has none from a pod either. */
static __always_inline struct frontend *frontend_of(struct __sk_buff *skb, const struct packet *p)
{
	struct frontend_key key = { .addr = p->to, .port = p->to_port, .protocol = IPPROTO_TCP, .origin = FROM_OUTSIDE };
	struct frontend *f = find_frontend(&key);

	if (!f || !is_from_pod(skb, p))
		return f;
	key.origin = FROM_POD;
	return find_frontend(&key);
}

/* The program leaves packets that have an address of the host as their source. The kernel drops those with a loopback address. */
static __always_inline int claims_to_be_us(const struct packet *p)
{
	const struct address loopback = { .word = { 0, 0, 0, bpf_htonl(1) } };
	__u8 *flags;

	if (p->v4 ? p->from.byte[12] == 127 : same(&p->from, &loopback))
		return 1;
	flags = bpf_map_lookup_elem(&addresses, &p->from);
	return flags && *flags & SOURCE;
}

/* Returns the address that the kernel would masquerade with where the route has this one. */
static __always_inline int globally(const struct settings *s, __be32 ip, struct address *source)
{
	if (!bpf_map_lookup_elem(&sources, &ip))
		ip = s->source;
	from_v4(source, ip);
	return ip != 0;
}

/*
 * Finds the source that the endpoint sees where it must not see the client; returns 0 if it is not known. An endpoint at an address of
 * this host sees the client, as with nftables, which masquerades only what leaves the host. The lookup has all that a routing rule may
 * ask for but the mark: the packet has none yet that a rule of nftables sets.
 */
static __always_inline int masquerade(struct __sk_buff *skb, const struct packet *p, const struct settings *s, const struct endpoint *e, struct address *source)
{
	struct bpf_fib_lookup fib = { .ifindex = skb->ingress_ifindex, .l4_protocol = IPPROTO_TCP, .sport = p->from_port, .dport = e->port };
	long result;

	if (s->flags & MARK_RULES)
		return 0;
	if (p->v4) {
		fib.family = AF_INET;
		fib.tos = p->class;
		fib.ipv4_src = p->from.word[3];
		fib.ipv4_dst = e->addr.word[3];
	} else {
		fib.family = AF_INET6;
		fib.flowinfo = p->class & bpf_htonl(0x0fffffff);
		__builtin_memcpy(fib.ipv6_src, &p->from, sizeof(p->from));
		__builtin_memcpy(fib.ipv6_dst, &e->addr, sizeof(e->addr));
	}
	result = bpf_fib_lookup(skb, &fib, sizeof(fib), FIB_SOURCE | FIB_SKIP_NEIGHBOUR);
	if (result == BPF_FIB_LKUP_RET_NOT_FWDED)
		return 1;
	if (result != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	if (p->v4)
		return globally(s, fib.ipv4_src, source);
	__builtin_memcpy(source, fib.ipv6_src, sizeof(*source));
	return 1;
}

/*
 * Takes a token of this processor's bucket. Firewall rules do not see a packet before its connection is in connection tracking, so a flood
 * of SYNs that they would drop fills the table. Within this rate it cannot; nftables serves the connections beyond it.
 */
static __always_inline int within_rate(const struct settings *s)
{
	__u64 now = bpf_ktime_get_ns(), each, fresh;
	__u32 zero = 0, rate = s->packets;
	struct bucket *b = bpf_map_lookup_elem(&buckets, &zero);

	if (!b || !rate || s->flags & TRACKING_FULL)
		return 0;
	each = 1000000000 / rate;
	fresh = (now - b->at) / (each ? each : 1);
	if (b->tokens + fresh >= rate) {
		b->tokens = rate;
		b->at = now;
	} else {
		b->tokens += fresh;
		b->at += fresh * each;
	}
	if (!b->tokens)
		return 0;
	b->tokens--;
	return 1;
}

/* Returns the counter if nftables must serve a new connection, else 0. */
static __always_inline int forward(struct __sk_buff *skb, const struct packet *p, struct flow *flow, const struct settings *s, const struct frontend *f)
{
	struct address source = p->from;
	struct endpoint *found = pick(f), e;

	if (!found)
		return LEFT_RACE;
	e = *found;
	if ((f->flags & MASQUERADED || (e.flags & LOCAL && same(&p->from, &e.addr))) && !masquerade(skb, p, s, &e, &source))
		return LEFT_ROUTE;
	if (!within_rate(s))
		return LEFT_RATE;
	return track(skb, p, flow, &e, &source) ? 0 : LEFT_TRACKING;
}

SEC("tc") int packets(struct __sk_buff *skb)
{
	struct packet p = {};
	struct flow flow = {};
	struct frontend *f;
	struct settings *s;
	__u32 zero = 0;
	int left;

	s = bpf_map_lookup_elem(&config, &zero);
	if (!s || !s->packets || skb->pkt_type != FOR_THE_HOST || skb->vlan_present || passes(skb) || !parse(skb, &p))
		return NEXT;
	f = frontend_of(skb, &p);
	if (!f || claims_to_be_us(&p))
		return NEXT;
	if (f->flags & LEFT) {
		count(f->flags >> 8 & 0xff);
		return NEXT;
	}
	flow_of(&p, &flow);
	if (known(skb, &p, &flow))
		return NEXT;
	left = forward(skb, &p, &flow, s, f);
	if (left)
		count(left);
	else
		count_taken(PACKETS_TCP, f);
	return NEXT;
}
