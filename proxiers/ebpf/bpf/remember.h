/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stores which frontend a socket asked for and which endpoint it got. The application must see the frontend: in getpeername, and as the
 * source of datagrams. The kernel frees this storage with the socket. The map is pinned, so it outlives the daemon.
 */
#pragma once
#include "maps.h"

/* An unconnected datagram socket can talk to several frontends. */
#define PEERS 4

/* endpoint_port is 0 if nftables serves the frontend. It stays so, because connection tracking has chosen the endpoint. */
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

/*
 * The connected UDP sockets by their cookies. The program release deletes a socket when it closes. When the map is full, nftables serves
 * the next socket, and the conntrack follower moves it off an endpoint that is gone.
 */
HASH(connections, __u64, struct connection, 65536);

static __always_inline void remove_connection(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);

	if (ctx->protocol == IPPROTO_UDP)
		bpf_map_delete_elem(&connections, &cookie);
}

static __always_inline void set_peer(struct peer *p, const struct frontend_key *key, const struct endpoint *e, __u32 service)
{
	p->frontend = key->addr;
	p->frontend_port = key->port;
	p->endpoint = e->addr;
	p->endpoint_port = e->port;
	p->service = service;
}

/* Stores the one peer of a connected socket. Returns the counter if nftables must serve the socket, else -1. */
static __always_inline int remember_one(struct bpf_sock_addr *ctx, const struct frontend_key *key, const struct endpoint *e, const struct frontend *f)
{
	struct peers *s = bpf_sk_storage_get(&sockets, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!s)
		return LEFT_STORAGE;
	if (key->protocol == IPPROTO_UDP && !(f->flags & PROBE)) {
		struct connection c = { .addr = e->addr, .port = e->port, .service = f->service };
		__u64 cookie = bpf_get_socket_cookie(ctx);

		if (bpf_map_update_elem(&connections, &cookie, &c, BPF_ANY))
			return LEFT_ROOM;
	}
#pragma unroll
	for (int i = 1; i < PEERS; i++) {
		s->peer[i].frontend_port = 0;
		s->peer[i].endpoint_port = 0;
	}
	set_peer(&s->peer[0], key, e, f->service);
	return -1;
}

/* Returns the peer for a frontend that the socket has sent to before. */
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
 * Stores one more peer of a datagram socket. Returns the counter if nftables must serve the peer, else -1. The replies of an endpoint
 * that serves two of the socket's frontends look alike, so nftables serves the second one: connection tracking uses another source port.
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

/* Forgets the peers of a socket that connects to something else: its application must see that address. */
static __always_inline void forget(struct bpf_sock_addr *ctx)
{
	struct peers *s = bpf_sk_storage_get(&sockets, ctx->sk, 0, 0);

	if (!s)
		return;
	remove_connection(ctx);
#pragma unroll
	for (int i = 0; i < PEERS; i++) {
		s->peer[i].frontend_port = 0;
		s->peer[i].endpoint_port = 0;
	}
}

/* Returns the peer that has this endpoint: the application means its frontend. */
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
