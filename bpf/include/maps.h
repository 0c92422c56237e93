/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps that several programs share. The loader makes them once, from budget.bpf.c. */
#ifndef MAINSPRING_MAPS_H
#define MAINSPRING_MAPS_H

#include "decide.h"

#define MAX_CPUS 1024
#define MAX_GROUPS 8192

/* Which server a cgroup belongs to. own is the cgroup of the server itself, of which this one may be a
 * descendant. */
struct tracked {
	__u64 own;
	__u32 slot;
	__u32 _pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__type(key, __u64); /* cgroup id: the directory's inode */
	__type(value, struct tracked);
} groups SEC(".maps");

/* How often groups has changed: the loader counts each change, once it is done. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} changes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct slot_config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct slot_state);
} states SEC(".maps");

/* What was told of each slot: memory of the programs alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct told);
} tolds SEC(".maps");

/* A ring for each core, so that its reader is woken on it. The loader sets the size and puts the rings in. */
struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* Events that did not fit, or whose core has no ring; by core. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* Threads that were not seen to come, by core. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} unseen SEC(".maps");

/* A slot with all that is known of it. */
struct server {
	struct slot_config *config;
	struct slot_state *state;
	struct told *told;
	__u32 slot;
};

static __always_inline bool find_server(struct server *s, __u32 slot)
{
	s->slot = slot;
	s->config = bpf_map_lookup_elem(&configs, &slot);
	s->state = bpf_map_lookup_elem(&states, &slot);
	s->told = bpf_map_lookup_elem(&tolds, &slot);
	return s->config && s->state && s->told && (s->config->flags & FLAG_LIVE);
}

/* emit puts an event into the ring of the server's core and wakes its reader. */
static __always_inline void emit(const struct server *s, enum kind kind, __u64 instant, __u64 now, __u64 window,
				 __u64 used)
{
	__u32 core = s->config->core;
	void *ring = bpf_map_lookup_elem(&rings, &core);
	struct event *e = ring ? bpf_ringbuf_reserve(ring, sizeof(*e), 0) : NULL;

	if (!e) {
		__u64 *n = bpf_map_lookup_elem(&lost, &core);
		if (n)
			__sync_fetch_and_add(n, 1);
		return;
	}
	e->instant = instant;
	e->detected = now;
	e->window = window;
	e->used_ns = used;
	e->slot = s->slot;
	e->generation = s->config->generation;
	e->kind = kind;
	e->cpu = bpf_get_smp_processor_id();
	bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
}

#endif
