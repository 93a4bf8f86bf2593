//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The first packet of a connection from elsewhere to a Service, at the network device by which it comes in: connection tracking is told of
 * the connection and its endpoint, and translates all its packets from then on. The packet itself goes on as it is. What this program
 * does not do is done by the rules of nftables, which are not asked for what connection tracking knows.
 */
#include "tracking.h"

/* For bpf_get_prandom_u32 and others. */
char terms[] SEC("license") = "GPL";

enum { NEXT = -1 /* TC_ACT_UNSPEC: other programs at the device go on, then the kernel */ };

enum { FOR_THE_HOST = 0 /* PACKET_HOST: not what a bridge, or a device above this one, takes */ };

/* Of bpf_fib_lookup, which older headers lack. */
enum { FIB_SKIP_NEIGHBOUR = 1 << 2, FIB_SOURCE = 1 << 4 };

/* Where pods are: by a range of addresses, or by the device that their packets come in by. */
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

/* Addresses of IPv4 that the kernel masquerades with: not those that are for one link alone. */
HASH(sources, __be32, __u8, 4096);

static __always_inline int is_from_pod(struct __sk_buff *skb, const struct packet *p)
{
	struct pod_range range = { .length = 128, .addr = p->from };
	__u32 device = skb->ingress_ifindex;

	return bpf_map_lookup_elem(&pod_ranges, &range) || bpf_map_lookup_elem(&pod_devices, &device);
}

/* The frontend that a packet is for. Most packets are for none, and what is for none from outside is for none from a pod. */
static __always_inline struct frontend *frontend_of(struct __sk_buff *skb, const struct packet *p)
{
	struct frontend_key key = { .addr = p->to, .port = p->to_port, .protocol = p->protocol, .origin = FROM_OUTSIDE };
	struct frontend *f = find_frontend(&key);

	if (!f || !is_from_pod(skb, p))
		return f;
	key.origin = FROM_POD;
	return find_frontend(&key);
}

/* A packet with an address of the host as its source is no matter for a shortcut, and one with a loopback address the kernel drops. */
static __always_inline int claims_to_be_us(const struct packet *p)
{
	const struct address loopback = { .word = { 0, 0, 0, bpf_htonl(1) } };
	__u8 *flags;

	if (p->v4 ? p->from.byte[12] == 127 : same(&p->from, &loopback))
		return 1;
	flags = bpf_map_lookup_elem(&addresses, &p->from);
	return flags && *flags & SOURCE;
}

/* The address that the kernel would masquerade with, where the route's is this. */
static __always_inline int globally(const struct settings *s, __be32 ip, struct address *source)
{
	if (!bpf_map_lookup_elem(&sources, &ip))
		ip = s->source;
	from_v4(source, ip);
	return ip != 0;
}

/*
 * The source that the endpoint sees, where it must not see the client; 0: it cannot be told. An endpoint at an address of this host sees
 * the client, as it would with rules: they masquerade what leaves the host.
 */
static __always_inline int masquerade(struct __sk_buff *skb, const struct packet *p, const struct settings *s, const struct endpoint *e, struct address *source)
{
	struct bpf_fib_lookup fib = { .ifindex = skb->ingress_ifindex };
	long result;

	if (p->v4) {
		fib.family = AF_INET;
		fib.ipv4_src = p->from.word[3];
		fib.ipv4_dst = e->addr.word[3];
	} else {
		fib.family = AF_INET6;
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

/* Why a new connection is left to nftables; 0: it is not. */
static __always_inline int forward(struct __sk_buff *skb, const struct packet *p, struct flow *flow, const struct settings *s, const struct frontend *f)
{
	struct address source = p->from;
	struct endpoint *found = pick(f), e;

	if (!found)
		return LEFT_RACE;
	e = *found;
	if ((f->flags & MASQUERADED || (e.flags & LOCAL && same(&p->from, &e.addr))) && !masquerade(skb, p, s, &e, &source))
		return LEFT_ROUTE;
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
	if (!s || !s->packets || skb->pkt_type != FOR_THE_HOST || skb->vlan_present || goes_on(skb) || !parse(skb, &p) || !p.first)
		return NEXT;
	f = frontend_of(skb, &p);
	if (!f || claims_to_be_us(&p))
		return NEXT;
	if (f->flags & LEFT) {
		/* Datagrams look all alike: those of one connection would be counted one by one. */
		if (p.protocol == IPPROTO_TCP)
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
		count_taken(p.protocol == IPPROTO_TCP ? PACKETS_TCP : PACKETS_UDP, f->service);
	return NEXT;
}
