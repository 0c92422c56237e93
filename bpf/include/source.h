/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* How much of a server's budget is left, by the one who keeps the account. */
#ifndef MAINSPRING_SOURCE_H
#define MAINSPRING_SOURCE_H

#include "task.h"

/* How deep groups may be nested: kubepods, QoS class, pod, container, and some of its own. */
#define MAX_LEVELS 10

/* A thread on its core. */
struct running {
	struct task_struct *task;
	__u64 now;
	__u64 pending; /* run, but not yet in the kernel's account, which it keeps at ticks and switches */
	__u64 own;     /* the server's cgroup */
};

/* has_rt_groups: the kernel keeps accounts of RT groups as it did before hierarchical constant bandwidth servers. Their
 * patches keep sched_rt_entity.rt_rq and drop the rest. */
static __always_inline bool has_rt_groups(void)
{
	return bpf_core_field_exists(((struct sched_rt_entity *)0)->rt_rq) &&
	       bpf_core_field_exists(((struct sched_rt_entity *)0)->parent) &&
	       bpf_core_field_exists(((struct rt_rq *)0)->rt_time) &&
	       bpf_core_field_exists(((struct rt_rq *)0)->rt_runtime) &&
	       bpf_core_field_exists(((struct rt_rq *)0)->rt_throttled) &&
	       bpf_core_field_exists(((struct task_group *)0)->rt_bandwidth);
}

/* own_rt_rq is the run queue of the server's group on this core: that of the thread, or one above it. */
static __always_inline struct rt_rq *own_rt_rq(const struct running *r)
{
	struct sched_rt_entity *se = &r->task->rt;
	struct rt_rq *q = se->rt_rq;

	if (identity != IDENTITY_CPU)
		return q;
	for (int i = 0; i < MAX_LEVELS; i++) {
		if (q->tg->css.cgroup->kn->id == r->own)
			return q;
		se = se->parent;
		if (!se)
			break;
		q = se->rt_rq;
	}
	return r->task->rt.rt_rq;
}

/* window_of is the start of the window under way. The kernel's windows of an RT group end when its period
 * timer fires; all others are our own. */
static __always_inline __u64 window_of(const struct server *s, const struct running *r, __u64 queued)
{
	if (s->config->source == SOURCE_RT_GROUP && has_rt_groups() && is_rt(r->task)) {
		struct task_group *tg = own_rt_rq(r)->tg;
		__s64 end = tg->rt_bandwidth.rt_period_timer.node.expires;
		__s64 period = tg->rt_bandwidth.rt_period;

		if (period > 0 && end > period)
			return end - period;
	}
	return own_window(s->state->window_start, s->config->period_ns, queued, r->now);
}

/* rt_levels is the least time until the kernel stops one of the thread's groups, and at which of them. */
static __always_inline __s64 rt_levels(const struct running *r, const struct rt_rq *own, __s64 *of_own)
{
	struct sched_rt_entity *se = &r->task->rt;
	__s64 least = S64_MAX;

	for (int i = 0; i < MAX_LEVELS && se; i++) {
		struct rt_rq *q = se->rt_rq;
		__u64 runtime = q->rt_runtime;

		if (runtime != ~0ULL) {
			__s64 rest = (__s64)runtime - (__s64)(q->rt_time + r->pending);

			if (q == own)
				*of_own = rest;
			else if (rest < least)
				least = rest;
		}
		se = se->parent;
	}
	return least;
}

static __always_inline void rt_group_left(const struct server *s, const struct running *r, struct left *l)
{
	struct rt_rq *own = own_rt_rq(r);
	__u64 budget = s->config->budget_ns, alarm = s->config->alarm_ns;
	__s64 kernel = S64_MAX, levels = rt_levels(r, own, &kernel), lead = budget - alarm;

	l->used = own->rt_time + r->pending;
	l->alarm = (__s64)alarm - (__s64)l->used;
	l->end = (__s64)budget - (__s64)l->used;
	if (kernel < l->end)
		l->end = kernel;
	if (lead > LEVEL_LEAD_NS)
		lead = LEVEL_LEAD_NS;
	if (levels < l->end)
		l->end = levels;
	if (levels - lead < l->alarm)
		l->alarm = levels - lead;
}

static __always_inline void deadline_left(const struct server *s, const struct running *r, struct left *l)
{
	__s64 rest = r->task->dl.runtime - (__s64)r->pending;
	__u64 whole = s->config->whole_ns, part = r->task->dl.dl_runtime, n = sharers(whole, part);

	l->used = used_of_whole(whole, part, rest);
	l->alarm = of_each((__s64)s->config->alarm_ns - (__s64)l->used, n);
	l->end = of_each((__s64)s->config->budget_ns - (__s64)l->used, n);
	if (rest < l->end)
		l->end = rest;
}

/* measure says what is left of the window under way, up to now. Threads that no budget binds never end. */
static __always_inline struct left measure(const struct server *s, const struct running *r)
{
	struct left l = {
		.alarm = S64_MAX,
		.end = S64_MAX,
		.window = s->state->window_start,
		.period = s->config->period_ns,
		.used = s->state->used_ns,
	};

	switch (s->config->source) {
	case SOURCE_RT_GROUP:
		if (has_rt_groups() && is_rt(r->task))
			rt_group_left(s, r, &l);
		break;
	case SOURCE_DEADLINE:
		if (is_deadline(r->task))
			deadline_left(s, r, &l);
		break;
	default:
		l.alarm = (__s64)s->config->alarm_ns - (__s64)l.used;
		l.end = (__s64)s->config->budget_ns - (__s64)l.used;
	}
	return l;
}

#endif
