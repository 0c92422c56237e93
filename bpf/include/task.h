/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs read of a thread. */
#ifndef MAINSPRING_TASK_H
#define MAINSPRING_TASK_H

#include "maps.h"

/* By which hierarchy a thread's server is known. The loader sets it. */
enum identity {
	IDENTITY_CPU = 0,    /* the cpu controller's: v1, and v2 where the container has it */
	IDENTITY_CPUSET = 1, /* the cpuset controller's, where real-time threads must stay in the root cpu group */
};

const volatile __u32 identity = IDENTITY_CPU;

/* css_of is the state of a thread's group in that hierarchy. */
static __always_inline struct cgroup_subsys_state *css_of(struct task_struct *p)
{
	if (identity == IDENTITY_CPU)
		return &p->sched_task_group->css;
	return p->cgroups->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpuset_cgrp_id)];
}

static __always_inline __u64 cgroup_id(struct task_struct *p)
{
	return css_of(p)->cgroup->kn->id;
}

static __always_inline struct tracked *find_group(struct task_struct *p)
{
	__u64 id = cgroup_id(p);

	return id ? bpf_map_lookup_elem(&groups, &id) : NULL;
}

/* Threads of the kernel, the idle ones among them, are in no container. */
static __always_inline bool is_kernel(struct task_struct *p)
{
	return p->flags & PF_KTHREAD;
}

static __always_inline bool is_rt(struct task_struct *p)
{
	return p->prio >= 0 && p->prio < 100;
}

/* wants_rt: its own policy is a real-time one; it may be for others' sake only that it is_rt (priority inheritance). */
static __always_inline bool wants_rt(struct task_struct *p)
{
	return p->normal_prio >= 0 && p->normal_prio < 100;
}

static __always_inline bool is_deadline(struct task_struct *p)
{
	return p->prio < 0;
}

static __always_inline bool dl_throttled(struct task_struct *p)
{
	struct sched_dl_entity *dl = &p->dl;

	barrier_var(dl); /* or the offset of dl would be added twice */
	return BPF_CORE_READ_BITFIELD(dl, dl_throttled);
}

static __always_inline struct rq *rq_of(struct task_struct *p)
{
	return p->se.cfs_rq->rq;
}

/* clock_offset is what is added to a time by the clock of a thread's run queue to have it by ours. That clock stands still
 * between the scheduler's doings, so it must have been set just now. */
static __always_inline __s64 clock_offset(struct task_struct *p, __u64 now)
{
	return now - rq_of(p)->clock;
}

/* on_our_clock is a time by a run queue's clock; now where it is none. */
static __always_inline __u64 on_our_clock(__u64 stamp, __s64 offset, __u64 now)
{
	__u64 ours = stamp + offset;

	return stamp && ours < now ? ours : now;
}

/* queued_at is when a thread that begins to run was put on the run queue; now where the kernel keeps no such
 * record. */
static __always_inline __u64 queued_at(struct task_struct *p, __s64 offset, __u64 now)
{
	if (!bpf_core_field_exists(p->sched_info.last_queued))
		return now;
	return on_our_clock(p->sched_info.last_queued, offset, now);
}

/* arrived_at is since when a thread has been on its core; now where the kernel keeps no such record. */
static __always_inline __u64 arrived_at(struct task_struct *p, __s64 offset, __u64 now)
{
	if (!bpf_core_field_exists(p->sched_info.last_arrival))
		return now;
	return on_our_clock(p->sched_info.last_arrival, offset, now);
}

#endif
