/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's connection tracking, by its functions for BPF (Linux 6.1). The types have only the fields that the program needs: the
 * loader finds their place in the running kernel.
 */
#pragma once
#include "packet.h"

union nf_inet_addr {
	__u32 all[4];
};

enum nf_nat_manip_type { NF_NAT_MANIP_SRC, NF_NAT_MANIP_DST };

/* enum tcp_conntrack */
enum { TCP_TIME_WAIT = 7, TCP_CLOSE = 8 };

/* Milliseconds until the first reply must come: the kernel's default for a SYN. */
enum { SYN_TIMEOUT = 120000 };

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

/* The form of 12 bytes, which all kernels accept. */
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
	f->opts.l4proto = IPPROTO_TCP;
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

/* The verifier accepts only constant sizes. */
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
 * Reports whether connection tracking knows the connection of a SYN. When a client reuses the port of a closed connection, the kernel would
 * drop the old entry and pass the SYN untranslated, because no rule translates an entry of BPF. So this function ends the old entry.
 */
static __always_inline int known(struct __sk_buff *skb, const struct packet *p, struct flow *f)
{
	struct nf_conn *ct = look_up(skb, p, f);
	__u8 state = 0;

	if (!ct)
		return 0;
	if (f->opts.dir == 0)
		state = ct->proto.tcp.state;
	if (state != TCP_TIME_WAIT && state != TCP_CLOSE) {
		bpf_ct_release(ct);
		return 1;
	}
	bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	ct = look_up(skb, p, f); /* removes the expired entry */
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
 * Adds a connection to connection tracking, with its endpoint and the source that the endpoint sees. The source is always set: two
 * connections from one port of a client to one endpoint, by two Services, would otherwise look alike to the endpoint. Port 0 lets the
 * kernel keep the client's port if it can. All steps that may fail precede the insertion, because only insertion frees the entry.
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
	bpf_ct_set_timeout(fresh, failed ? 0 : SYN_TIMEOUT);
	ct = bpf_ct_insert_entry(fresh);
	if (!ct)
		return 0; /* another processor was first, or the table is full */
	if (failed)
		bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	return !failed;
}
