/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a socket wanted to reach, and what it was sent to. The program that has the socket must see the former: in getpeername, and as
 * the source of datagrams. The kernel frees this with the socket, and the map is pinned, so that it outlives the daemon.
 */
#pragma once
#include "maps.h"

/* A datagram socket that is not connected may speak to several frontends. */
#define PEERS 4

/* Without an endpoint's port it is a frontend that is left to nftables, and stays so: connection tracking has its endpoint. */
struct peer {
	struct address frontend, endpoint;
	__be16 frontend_port, endpoint_port;
	__u32 service;
};

struct peers {
	struct peer peer[PEERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, int);
	__type(value, struct peers);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u64);
	__type(value, struct connection);
} connections SEC(".maps");

static __always_inline void set_peer(struct peer *p, const struct frontend_key *key, const struct endpoint *e, __u32 service)
{
	p->frontend = key->addr;
	p->frontend_port = key->port;
	p->endpoint = e->addr;
	p->endpoint_port = e->port;
	p->service = service;
}

/* A connected socket has one peer. */
static __always_inline int remember_one(struct bpf_sock_addr *ctx, const struct frontend_key *key, const struct endpoint *e, __u32 service)
{
	struct peers *s = bpf_sk_storage_get(&sockets, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!s)
		return 0;
#pragma unroll
	for (int i = 1; i < PEERS; i++) {
		s->peer[i].frontend_port = 0;
		s->peer[i].endpoint_port = 0;
	}
	set_peer(&s->peer[0], key, e, service);
	if (key->protocol == IPPROTO_UDP) {
		struct connection c = { .addr = e->addr, .port = e->port, .service = service };
		__u64 cookie = bpf_get_socket_cookie(ctx);

		bpf_map_update_elem(&connections, &cookie, &c, BPF_ANY);
	}
	return 1;
}

/* The peer of a frontend that a socket has spoken to before. */
static __always_inline struct peer *known_peer(struct bpf_sock_addr *ctx, const struct frontend_key *key)
{
	struct peers *s = bpf_sk_storage_get(&sockets, ctx->sk, 0, 0);

	if (!s)
		return 0;
#pragma unroll
	for (int i = 0; i < PEERS; i++) {
		struct peer *p = &s->peer[i];

		if (p->frontend_port == key->port && same(&p->frontend, &key->addr))
			return p;
	}
	return 0;
}

static __always_inline int still_serves(const struct peer *p)
{
	struct member_key m = { .addr = p->endpoint, .port = p->endpoint_port, .service = p->service };

	return !!bpf_map_lookup_elem(&members, &m);
}

/*
 * One more peer of a datagram socket, which gives the counter if it is left to nftables. Two frontends with one endpoint cannot be told
 * apart when it replies: the second is left, and connection tracking takes another source port for it.
 */
static __always_inline int remember_more(struct bpf_sock_addr *ctx, const struct frontend_key *key, const struct endpoint *e, __u32 service)
{
	struct peers *s = bpf_sk_storage_get(&sockets, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	int room = -1, own = -1, crowded = 0;

	if (!s)
		return LEFT_STORAGE;
#pragma unroll
	for (int i = PEERS - 1; i >= 0; i--) {
		struct peer *p = &s->peer[i];

		if (p->frontend_port == key->port && same(&p->frontend, &key->addr))
			room = own = i;
		else if (!p->frontend_port && own < 0)
			room = i;
		else if (p->endpoint_port == e->port && same(&p->endpoint, &e->addr))
			crowded = 1;
	}
	if (room < 0)
		return LEFT_CROWDED;
#pragma unroll
	for (int i = 0; i < PEERS; i++) {
		if (i != room)
			continue;
		set_peer(&s->peer[i], key, e, service);
		if (crowded)
			s->peer[i].endpoint_port = 0;
	}
	return crowded ? LEFT_CROWDED : -1;
}

/* What a socket has reached without being sent there is what its program means. */
static __always_inline void forget(struct bpf_sock_addr *ctx)
{
	struct peers *s = bpf_sk_storage_get(&sockets, ctx->sk, 0, 0);

	if (!s)
		return;
#pragma unroll
	for (int i = 0; i < PEERS; i++) {
		s->peer[i].frontend_port = 0;
		s->peer[i].endpoint_port = 0;
	}
}

/* The frontend by which a socket came to speak with an endpoint. */
static __always_inline struct peer *meant(struct bpf_sock_addr *ctx, const struct address *a, __be16 port)
{
	struct peers *s;

	if (!ctx->sk)
		return 0;
	s = bpf_sk_storage_get(&sockets, ctx->sk, 0, 0);
	if (!s)
		return 0;
#pragma unroll
	for (int i = 0; i < PEERS; i++) {
		struct peer *p = &s->peer[i];

		if (p->endpoint_port && p->endpoint_port == port && same(&p->endpoint, a))
			return p;
	}
	return 0;
}
