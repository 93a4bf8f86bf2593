/* SPDX-License-Identifier: GPL-2.0-only */
/* What a packet says of itself, in the bytes that the network device gave to the kernel. */
#pragma once
#include "maps.h"

enum { ETHERTYPE_IPV4 = 0x0800, ETHERTYPE_IPV6 = 0x86dd };

/* Headers that may stand before that of TCP or UDP (RFC 8200). */
enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60, MOST_HEADERS = 4 };

enum { TCP_FLAGS = 0x17 /* FIN, SYN, RST, ACK */, TCP_SYN = 0x02 };

struct packet {
	struct address from, to;
	__be16 from_port, to_port;
	__u8 protocol;
	__u8 v4;
	__u8 first; /* it may begin a connection */
};

struct ipv4 {
	__u8 words, service; /* the lower half of the first byte is the header's length */
	__be16 length, number, fragment;
	__u8 hops, protocol;
	__be16 sum;
	__be32 from, to;
};

struct ipv6 {
	__be32 class;
	__be16 length;
	__u8 next, hops;
	struct address from, to;
};

struct extension {
	__u8 next, eights;
	__be16 fragment;
};

struct ports {
	__be16 from, to;
	__be32 sequence, acknowledged;
	__u8 words, flags; /* up to here of TCP alone */
};

static __always_inline int load(struct __sk_buff *skb, __u32 at, void *to, __u32 n)
{
	return bpf_skb_load_bytes_relative(skb, at, to, n, BPF_HDR_START_NET) == 0;
}

/* What almost every packet is: one of a TCP connection that has begun, without options before its ports. One look is enough for it. */
static __always_inline int goes_on(struct __sk_buff *skb)
{
	union {
		struct {
			struct ipv4 h;
			struct ports t;
		} v4;
		struct {
			struct ipv6 h;
			struct ports t;
		} v6;
	} b;

	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4))
		return load(skb, 0, &b, sizeof(b.v4.h) + 14) && (b.v4.h.words & 0xf) == 5 && b.v4.h.protocol == IPPROTO_TCP && (b.v4.t.flags & TCP_FLAGS) != TCP_SYN;
	return skb->protocol == bpf_htons(ETHERTYPE_IPV6) && load(skb, 0, &b, sizeof(b.v6.h) + 14) && b.v6.h.next == IPPROTO_TCP && (b.v6.t.flags & TCP_FLAGS) != TCP_SYN;
}

static __always_inline int parse_ipv4(struct __sk_buff *skb, struct packet *p, __u32 *at)
{
	struct ipv4 h;

	if (!load(skb, 0, &h, sizeof(h)) || h.fragment & bpf_htons(0x1fff))
		return 0; /* connection tracking puts fragments together, and knows the connection by the first */
	from_v4(&p->from, h.from);
	from_v4(&p->to, h.to);
	p->protocol = h.protocol;
	p->v4 = 1;
	*at = (h.words & 0xf) * 4;
	return *at >= sizeof(h);
}

static __always_inline int parse_ipv6(struct __sk_buff *skb, struct packet *p, __u32 *at)
{
	struct ipv6 h;

	if (!load(skb, 0, &h, sizeof(h)))
		return 0;
	p->from = h.from;
	p->to = h.to;
	p->protocol = h.next;
	*at = sizeof(h);
#pragma unroll
	for (int i = 0; i < MOST_HEADERS; i++) {
		struct extension e;

		if (p->protocol != HOP_BY_HOP && p->protocol != ROUTING && p->protocol != FRAGMENT && p->protocol != DESTINATION)
			return 1;
		if (!load(skb, *at, &e, sizeof(e)))
			return 0;
		if (p->protocol == FRAGMENT && e.fragment & bpf_htons(0xfff8))
			return 0;
		*at += p->protocol == FRAGMENT ? 8 : (e.eights + 1) * 8;
		p->protocol = e.next;
	}
	return 1;
}

/* Whether a packet is one of TCP or UDP that a Service could be meant by. */
static __always_inline int parse(struct __sk_buff *skb, struct packet *p)
{
	struct ports h = {};
	__u32 at = 0;

	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
		if (!parse_ipv4(skb, p, &at))
			return 0;
	} else if (skb->protocol != bpf_htons(ETHERTYPE_IPV6) || !parse_ipv6(skb, p, &at)) {
		return 0;
	}
	if (p->protocol == IPPROTO_TCP) {
		if (!load(skb, at, &h, 14))
			return 0;
		p->first = (h.flags & TCP_FLAGS) == TCP_SYN;
	} else if (p->protocol == IPPROTO_UDP) {
		if (!load(skb, at, &h, 4))
			return 0;
		p->first = 1;
	} else {
		return 0;
	}
	p->from_port = h.from;
	p->to_port = h.to;
	return 1;
}
