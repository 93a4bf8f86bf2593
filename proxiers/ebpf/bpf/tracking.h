/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's connection tracking, by the functions that it has for BPF since Linux 6.1. Only the fields of its types that are needed
 * are here: where they are in a kernel, the loader finds out.
 */
#pragma once
#include "packet.h"

union nf_inet_addr {
	__u32 all[4];
};

enum nf_nat_manip_type { NF_NAT_MANIP_SRC, NF_NAT_MANIP_DST };

/* enum tcp_conntrack */
enum { TCP_TIME_WAIT = 7, TCP_CLOSE = 8 };

/* Milliseconds until the first reply must be there, as the kernel has them for a SYN and for UDP by default. */
enum { SYN_TIMEOUT = 120000, UDP_TIMEOUT = 30000 };

struct ip_ct_tcp {
	__u8 state;
} __attribute__((preserve_access_index));

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
} __attribute__((preserve_access_index));

struct nf_conn {
	union nf_conntrack_proto proto;
} __attribute__((preserve_access_index));

/* cilium/ebpf v0.22.0 wants more of it than that it is there. */
struct nf_conn___init {
	struct nf_conn ct;
} __attribute__((preserve_access_index));

/* The form of 12 bytes, which all kernels take. */
struct bpf_ct_opts___local {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *, struct bpf_sock_tuple *, __u32, struct bpf_ct_opts___local *, __u32) __ksym;
struct nf_conn___init *bpf_skb_ct_alloc(struct __sk_buff *, struct bpf_sock_tuple *, __u32, struct bpf_ct_opts___local *, __u32) __ksym;
struct nf_conn *bpf_ct_insert_entry(struct nf_conn___init *) __ksym;
void bpf_ct_release(struct nf_conn *) __ksym;
void bpf_ct_set_timeout(struct nf_conn___init *, __u32) __ksym;
int bpf_ct_change_timeout(struct nf_conn *, __u32) __ksym;
int bpf_ct_set_nat_info(struct nf_conn___init *, union nf_inet_addr *, int port, enum nf_nat_manip_type) __ksym;

struct flow {
	struct bpf_sock_tuple tuple;
	struct bpf_ct_opts___local opts;
};

static __always_inline void flow_of(const struct packet *p, struct flow *f)
{
	struct bpf_sock_tuple *t = &f->tuple;

	f->opts.netns_id = BPF_F_CURRENT_NETNS;
	f->opts.l4proto = p->protocol;
	if (p->v4) {
		t->ipv4.saddr = p->from.word[3];
		t->ipv4.daddr = p->to.word[3];
		t->ipv4.sport = p->from_port;
		t->ipv4.dport = p->to_port;
	} else {
		__builtin_memcpy(t->ipv6.saddr, &p->from, sizeof(p->from));
		__builtin_memcpy(t->ipv6.daddr, &p->to, sizeof(p->to));
		t->ipv6.sport = p->from_port;
		t->ipv6.dport = p->to_port;
	}
}

/* The verifier wants to know each size. */
static __always_inline struct nf_conn *look_up(struct __sk_buff *skb, const struct packet *p, struct flow *f)
{
	if (p->v4)
		return bpf_skb_ct_lookup(skb, &f->tuple, sizeof(f->tuple.ipv4), &f->opts, sizeof(f->opts));
	return bpf_skb_ct_lookup(skb, &f->tuple, sizeof(f->tuple.ipv6), &f->opts, sizeof(f->opts));
}

static __always_inline struct nf_conn___init *allocate(struct __sk_buff *skb, const struct packet *p, struct flow *f)
{
	if (p->v4)
		return bpf_skb_ct_alloc(skb, &f->tuple, sizeof(f->tuple.ipv4), &f->opts, sizeof(f->opts));
	return bpf_skb_ct_alloc(skb, &f->tuple, sizeof(f->tuple.ipv6), &f->opts, sizeof(f->opts));
}

/*
 * Whether connection tracking knows the connection. A SYN that reuses the port of one that is over would have the kernel drop the old
 * entry and let the packet pass untranslated, as entries of BPF have no rule to be translated by: the old one is ended here.
 */
static __always_inline int known(struct __sk_buff *skb, const struct packet *p, struct flow *f)
{
	struct nf_conn *ct = look_up(skb, p, f);
	__u8 state = 0;

	if (!ct)
		return 0;
	if (p->protocol == IPPROTO_TCP && p->first && f->opts.dir == 0)
		state = ct->proto.tcp.state;
	if (state != TCP_TIME_WAIT && state != TCP_CLOSE) {
		bpf_ct_release(ct);
		return 1;
	}
	bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	ct = look_up(skb, p, f); /* which collects what is over */
	if (!ct)
		return 0;
	bpf_ct_release(ct);
	return 1;
}

static __always_inline void to_kernel(const struct packet *p, const struct address *a, union nf_inet_addr *out)
{
	if (p->v4)
		out->all[0] = a->word[3];
	else
		__builtin_memcpy(out, a, sizeof(*a));
}

/*
 * Tells connection tracking of a connection to an endpoint, and what source it has there. The source is always told: without, two
 * connections of one client's port to one endpoint, by two Services, would be the same to the endpoint. Port 0 lets the kernel keep
 * the client's if it can. All that may fail comes before the entry is there, as only its insertion gives it back.
 */
static __always_inline int track(struct __sk_buff *skb, const struct packet *p, struct flow *f, const struct endpoint *e, const struct address *source)
{
	union nf_inet_addr to = {}, from = {};
	struct nf_conn___init *fresh;
	struct nf_conn *ct;
	int failed;

	to_kernel(p, &e->addr, &to);
	to_kernel(p, source, &from);
	fresh = allocate(skb, p, f);
	if (!fresh)
		return 0;
	failed = bpf_ct_set_nat_info(fresh, &to, bpf_ntohs(e->port), NF_NAT_MANIP_DST);
	if (!failed)
		failed = bpf_ct_set_nat_info(fresh, &from, 0, NF_NAT_MANIP_SRC);
	bpf_ct_set_timeout(fresh, failed ? 0 : p->protocol == IPPROTO_TCP ? SYN_TIMEOUT : UDP_TIMEOUT);
	ct = bpf_ct_insert_entry(fresh);
	if (!ct)
		return 0; /* another processor was first, or there is no room */
	if (failed)
		bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	return !failed;
}
