/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads the headers of a packet at a network device. */
#pragma once
#include "maps.h"

enum { ETHERTYPE_IPV4 = 0x0800, ETHERTYPE_IPV6 = 0x86dd };

/* Headers that may stand before that of TCP or UDP (RFC 8200). */
enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60, MOST_HEADERS = 4 };

enum { TCP_FLAGS = 0x17 /* FIN, SYN, RST, ACK */, TCP_SYN = 0x02 };

struct packet {
	struct address from, to;
	__be32 class; /* IPv6: traffic class and flow label, as in the header; IPv4: the type of service */
	__be16 from_port, to_port;
	__u8 v4;
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
	__u8 words, flags;
};

static __always_inline int load(struct __sk_buff *skb, __u32 at, void *to, __u32 n)
{
	return bpf_skb_load_bytes_relative(skb, at, to, n, BPF_HDR_START_NET) == 0;
}

/*
 * Reports whether the first bytes are enough to see that a packet begins no TCP connection. That holds for almost every packet: UDP, which
 * nftables serves, and a TCP connection that has begun, both without options before the ports.
 */
static __always_inline int passes(struct __sk_buff *skb)
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

	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4)) {
		if (!load(skb, 0, &b, sizeof(b.v4.h) + 14) || (b.v4.h.words & 0xf) != 5)
			return 0;
		return b.v4.h.protocol != IPPROTO_TCP || (b.v4.t.flags & TCP_FLAGS) != TCP_SYN;
	}
	if (skb->protocol != bpf_htons(ETHERTYPE_IPV6) || !load(skb, 0, &b, sizeof(b.v6.h) + 14))
		return 0;
	return b.v6.h.next == IPPROTO_UDP || (b.v6.h.next == IPPROTO_TCP && (b.v6.t.flags & TCP_FLAGS) != TCP_SYN);
}

/* Returns the protocol behind the header of IPv4 and its place, or 0 if the packet is not for the program. */
static __always_inline int parse_ipv4(struct __sk_buff *skb, struct packet *p, __u32 *at)
{
	struct ipv4 h;

	if (!load(skb, 0, &h, sizeof(h)) || h.fragment & bpf_htons(0x1fff))
		return 0; /* connection tracking reassembles fragments, and knows the connection by the first one */
	from_v4(&p->from, h.from);
	from_v4(&p->to, h.to);
	p->class = h.service;
	p->v4 = 1;
	*at = (h.words & 0xf) * 4;
	return *at >= sizeof(h) ? h.protocol : 0;
}

/* As parse_ipv4. HOP_BY_HOP is 0 too, and never the last header. */
static __always_inline int parse_ipv6(struct __sk_buff *skb, struct packet *p, __u32 *at)
{
	struct ipv6 h;
	__u8 protocol;

	if (!load(skb, 0, &h, sizeof(h)))
		return 0;
	p->from = h.from;
	p->to = h.to;
	p->class = h.class;
	protocol = h.next;
	*at = sizeof(h);
#pragma unroll
	for (int i = 0; i < MOST_HEADERS; i++) {
		struct extension e;

		if (protocol != HOP_BY_HOP && protocol != ROUTING && protocol != FRAGMENT && protocol != DESTINATION)
			return protocol;
		if (!load(skb, *at, &e, sizeof(e)))
			return 0;
		if (protocol == FRAGMENT && e.fragment & bpf_htons(0xfff8))
			return 0;
		*at += protocol == FRAGMENT ? 8 : (e.eights + 1) * 8;
		protocol = e.next;
	}
	return protocol;
}

/* Reports whether a packet may begin a TCP connection. */
static __always_inline int parse(struct __sk_buff *skb, struct packet *p)
{
	struct ports h = {};
	__u32 at = 0;
	int protocol = 0;

	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4))
		protocol = parse_ipv4(skb, p, &at);
	else if (skb->protocol == bpf_htons(ETHERTYPE_IPV6))
		protocol = parse_ipv6(skb, p, &at);
	if (protocol != IPPROTO_TCP || !load(skb, at, &h, 14) || (h.flags & TCP_FLAGS) != TCP_SYN)
		return 0;
	p->from_port = h.from;
	p->to_port = h.to;
	return 1;
}
