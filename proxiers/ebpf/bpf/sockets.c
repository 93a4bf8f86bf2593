//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sockets of the host that connect, or send, to a Service are sent to an endpoint at once: no packet of theirs is translated. All
 * that these programs do not do is done by the rules of nftables, whose packets they let through unchanged.
 */
#include "maps.h"
#include "remember.h"

/* For bpf_get_netns_cookie and others. */
char terms[] SEC("license") = "GPL";

enum { KEEP = 1 /* what the kernel goes on with, translated or not */ };

/*
 * Whether a socket is one whose connections the plan decides as the host's: in its network namespace, and not the daemon's own, which
 * must reach the API server whatever the plan says.
 */
static __always_inline int is_hosts(struct bpf_sock_addr *ctx)
{
	__u32 zero = 0;
	struct settings *s = bpf_map_lookup_elem(&config, &zero);

	return s && s->netns && ctx->sk && bpf_get_netns_cookie(ctx) == s->netns && !(ctx->sk->mark & s->own_mark);
}

/* A socket with an address of its own keeps it, unlike the packets that nftables masquerades. */
static __always_inline int may_bypass(struct bpf_sock_addr *ctx, const struct frontend *f, const struct address *source)
{
	__u8 *flags;

	if (ctx->sk->bound_dev_if)
		return 0;
	if (!source->word[3] && !source->word[0] && !source->word[1])
		return 1;
	if (f->flags & MASQUERADED)
		return 0;
	flags = bpf_map_lookup_elem(&addresses, source);
	return flags && *flags & SOURCE;
}

/* Where a frontend's connection is sent to; 0: nftables decides. */
static __always_inline int translate(struct bpf_sock_addr *ctx, const struct frontend_key *key, struct frontend *f, const struct address *source,
				     int datagram, struct endpoint *to)
{
	struct endpoint *e;
	int failed;

	if (f->flags & LEFT) {
		count(f->flags >> 8 & 0xff);
		return 0;
	}
	if (!may_bypass(ctx, f, source)) {
		count(LEFT_BOUND);
		return 0;
	}
	if (datagram) {
		struct peer *p = known_peer(ctx, key);

		if (p && !p->endpoint_port) {
			count(LEFT_CROWDED);
			return 0;
		}
		if (p && p->service == f->service && still_serves(p)) {
			to->addr = p->endpoint;
			to->port = p->endpoint_port;
			return 1;
		}
	}
	e = pick(f);
	if (!e) {
		count(LEFT_RACE);
		return 0;
	}
	*to = *e;
	if (datagram)
		failed = remember_more(ctx, key, to, f->service);
	else
		failed = remember_one(ctx, key, to, f);
	if (failed >= 0) {
		count(failed);
		return 0;
	}
	if (!(f->flags & PROBE))
		count_taken(datagram ? SENT_UDP : key->protocol == IPPROTO_TCP ? CONNECTED_TCP : CONNECTED_UDP, f);
	return 1;
}

static __always_inline int direct(struct bpf_sock_addr *ctx, struct frontend_key *key, const struct address *source, int datagram,
				  struct endpoint *to)
{
	struct frontend *f;

	if (!is_hosts(ctx))
		return 0;
	key->port = ctx->user_port;
	key->protocol = ctx->protocol == IPPROTO_MPTCP ? IPPROTO_TCP : ctx->protocol;
	key->origin = FROM_HOST;
	f = find_frontend(key);
	if (f && translate(ctx, key, f, source, datagram, to))
		return 1;
	if (!datagram)
		forget(ctx);
	return 0;
}

static __always_inline int direct4(struct bpf_sock_addr *ctx, int datagram)
{
	struct frontend_key key = {};
	struct address source = {};
	struct endpoint to;
	__u32 ip = 0;

	if (datagram)
		ip = ctx->msg_src_ip4;
	else if (ctx->sk)
		ip = ctx->sk->src_ip4;
	if (ip)
		from_v4(&source, ip);
	from_v4(&key.addr, ctx->user_ip4);
	if (direct(ctx, &key, &source, datagram, &to)) {
		ctx->user_ip4 = to.addr.word[3];
		ctx->user_port = to.port;
	}
	return KEEP;
}

static __always_inline int direct6(struct bpf_sock_addr *ctx, int datagram)
{
	struct frontend_key key = {};
	struct address source = {};
	struct endpoint to;

	if (datagram) {
		source.word[0] = ctx->msg_src_ip6[0];
		source.word[1] = ctx->msg_src_ip6[1];
		source.word[2] = ctx->msg_src_ip6[2];
		source.word[3] = ctx->msg_src_ip6[3];
	} else if (ctx->sk) {
		source.word[0] = ctx->sk->src_ip6[0];
		source.word[1] = ctx->sk->src_ip6[1];
		source.word[2] = ctx->sk->src_ip6[2];
		source.word[3] = ctx->sk->src_ip6[3];
	}
	key.addr.word[0] = ctx->user_ip6[0];
	key.addr.word[1] = ctx->user_ip6[1];
	key.addr.word[2] = ctx->user_ip6[2];
	key.addr.word[3] = ctx->user_ip6[3];
	if (direct(ctx, &key, &source, datagram, &to)) {
		ctx->user_ip6[0] = to.addr.word[0];
		ctx->user_ip6[1] = to.addr.word[1];
		ctx->user_ip6[2] = to.addr.word[2];
		ctx->user_ip6[3] = to.addr.word[3];
		ctx->user_port = to.port;
	}
	return KEEP;
}

static __always_inline int tell4(struct bpf_sock_addr *ctx)
{
	struct address a;
	struct peer *p;

	from_v4(&a, ctx->user_ip4);
	p = meant(ctx, &a, ctx->user_port);
	if (p) {
		ctx->user_ip4 = p->frontend.word[3];
		ctx->user_port = p->frontend_port;
	}
	return KEEP;
}

static __always_inline int tell6(struct bpf_sock_addr *ctx)
{
	struct address a;
	struct peer *p;

	a.word[0] = ctx->user_ip6[0];
	a.word[1] = ctx->user_ip6[1];
	a.word[2] = ctx->user_ip6[2];
	a.word[3] = ctx->user_ip6[3];
	p = meant(ctx, &a, ctx->user_port);
	if (p) {
		ctx->user_ip6[0] = p->frontend.word[0];
		ctx->user_ip6[1] = p->frontend.word[1];
		ctx->user_ip6[2] = p->frontend.word[2];
		ctx->user_ip6[3] = p->frontend.word[3];
		ctx->user_port = p->frontend_port;
	}
	return KEEP;
}

SEC("cgroup/connect4") int connect4(struct bpf_sock_addr *ctx) { return direct4(ctx, 0); }
SEC("cgroup/connect6") int connect6(struct bpf_sock_addr *ctx) { return direct6(ctx, 0); }
SEC("cgroup/sendmsg4") int sendmsg4(struct bpf_sock_addr *ctx) { return direct4(ctx, 1); }
SEC("cgroup/sendmsg6") int sendmsg6(struct bpf_sock_addr *ctx) { return direct6(ctx, 1); }
SEC("cgroup/recvmsg4") int recvmsg4(struct bpf_sock_addr *ctx) { return tell4(ctx); }
SEC("cgroup/recvmsg6") int recvmsg6(struct bpf_sock_addr *ctx) { return tell6(ctx); }
SEC("cgroup/getpeername4") int getpeername4(struct bpf_sock_addr *ctx) { return tell4(ctx); }
SEC("cgroup/getpeername6") int getpeername6(struct bpf_sock_addr *ctx) { return tell6(ctx); }

SEC("cgroup/sock_release") int release(struct bpf_sock *ctx)
{
	__u64 cookie;

	if (ctx->protocol == IPPROTO_UDP) {
		cookie = bpf_get_socket_cookie(ctx);
		bpf_map_delete_elem(&connections, &cookie);
	}
	return KEEP;
}
