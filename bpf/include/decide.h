/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs decide, as functions of values: no maps, no kernel memory, no clock. bpf/tests runs each
 * of them over tables. */
#ifndef MAINSPRING_DECIDE_H
#define MAINSPRING_DECIDE_H

#include "kernel.h"
#include "event.h"

/* Where a server is looked at. */
enum place {
	PLACE_IN,      /* a thread begins to run */
	PLACE_OUT,     /* it stops, and would go on */
	PLACE_BLOCKED, /* it stops of itself: its work is done */
	PLACE_TIMER,   /* it runs */
};

/* The least time until the timer of a core fires again. When a window should have ended and has not, it is looked
 * at after END_CHECK_NS: the kernel's own timer may be a little late. */
#define TIMER_MIN_NS 1000
#define END_CHECK_NS 100000

/* How long before a group above the container is used up to tell, at most. */
#define LEVEL_LEAD_NS 200000

/* How long after ALARM the end of the same budget is told at the earliest, where the kernel enforces it: an alarm that
 * came late, or without a lead, is to be answered first. */
#define END_GRACE_NS 100000

/* How long the reader of a server has to stop it before it is told again, how often in a window that is done, and how often
 * a server that it has stopped is looked at meanwhile. Whoever makes itself real-time again and again cannot be held so,
 * and must not flood the ring. */
#define STOPPED_NS 200000
#define STOPPED_TIMES 4
#define STOPPED_LOOK_NS 1000000

/* own_window is the start of the window that now lies in. A window lasts one period; the next begins at its
 * end when work was there, else when the thread was queued. Without an earlier window start is 0. */
static __always_inline __u64 own_window(__u64 start, __u64 period, __u64 queued, __u64 now)
{
	__u64 end = start + period;

	if (!start)
		return queued;
	if (!period || now < end)
		return start;
	if (queued > end)
		end = queued;
	return end + (now - end) / period * period;
}

/* A span of time that a thread ran, and what it does to the window under way. */
struct span {
	__u64 before; /* of the span, in the window that was */
	__u64 after;  /* in the one that is */
	__u64 begun;  /* windows; 0: still the same */
	__u64 idle;   /* whole periods between the two in which nothing ran */
};

/* split gives the span from since to now to the window that began at from and the one that began at to. */
static __always_inline struct span split(__u64 from, __u64 to, __u64 period, __u64 since, __u64 now)
{
	struct span s = {};
	__u64 end = from + period;

	if (since > now)
		since = now;
	if (from == to || !period) {
		s.before = now - since;
		return s;
	}
	if (end > to)
		end = to;
	s.begun = 1;
	if (since < end) {
		s.before = end - since;
		s.begun += (to - end) / period;
	} else {
		s.idle = (to - end) / period;
	}
	s.after = now - (since > to ? since : to);
	return s;
}

/* clean_after counts consecutive clean windows, once one that used used_ns has ended. Idle periods are clean;
 * windows that were run through are not, nor those in which a stopped server paid its debt. */
static __always_inline __u32 clean_after(__u32 clean, __u64 used_ns, __u64 clean_ns, const struct span *s, bool stopped)
{
	__u64 n = clean + 1;

	if (stopped)
		return 0;
	if (s->begun > 1 || used_ns > clean_ns)
		n = 0;
	n += s->idle;
	return n > 0xffffffff ? 0xffffffff : n;
}

/* clean_next is the count at which CLEAN is told again: a quarter of the wait later, as the reader may have
 * reasons to hold on. */
static __always_inline __u32 clean_next(__u32 clean, __u32 windows)
{
	__u32 step = (windows + 3) / 4;

	return clean + (step ? step : 1);
}

/* lost_windows is how many of the windows to come a server will not run in at all, having used so much. The kernel
 * takes one budget from that at the end of every window, and lets the server run when less than one is left. */
static __always_inline __u64 lost_windows(__u64 used, __u64 budget)
{
	return budget && used >= 2 * budget ? used / budget - 1 : 0;
}

/* sharers is how many threads have equal parts of a whole budget. */
static __always_inline __u64 sharers(__u64 whole, __u64 part)
{
	return part && whole > part ? whole / part : 1;
}

/* used_of_whole is what a server has used when one of its threads has so much left of its part: as much in proportion.
 * When one has used up its part the server has used up the whole. */
static __always_inline __u64 used_of_whole(__u64 whole, __u64 part, __s64 rest)
{
	__u64 n = sharers(whole, part);

	if (rest > (__s64)part)
		return 0;
	if (n > 1 && rest <= 0)
		return whole + (__u64)-rest * n;
	return (__u64)((__s64)part - rest) * n;
}

/* of_each is how long one of the threads that share a budget may run until they have together run so long; negative:
 * since when it has run beyond that. */
static __always_inline __s64 of_each(__s64 ns, __u64 n)
{
	return ns > 0 ? (__s64)((__u64)ns / n) : -(__s64)((__u64)-ns / n);
}

/* What is left of a budget, as of now. Negative: since when it is used up. */
struct left {
	__s64 alarm;
	__s64 end;
	__u64 used;
	__u64 window;
	__u64 period;
};

/* What was told of a server. alarm and end are keys: they differ whenever the same must be told again. */
struct told {
	__u64 alarm;     /* window + rearm */
	__u64 alarm_at;  /* when */
	__u64 end;       /* window + budget */
	__u64 end_at;    /* when, last */
	__u64 overrun;   /* window */
	__u64 throttled; /* window */
	__u64 levels;    /* window */
	__u32 clean_next;
	__u32 generation;
	__u32 absolute; /* a thread sleeps until absolute times: only those have jobs */
	__u32 stopped;  /* in the window under way, for whole windows to come */
	__u32 again;    /* how often END was told again */
	__u32 _pad;
};

struct verdict {
	__u8 alarm;   /* tell ALARM */
	__u8 overrun; /* count one */
	__u8 end;     /* tell END */
	__u64 due;    /* when to look again, from now; 0: never */
};

static __always_inline __u64 at_least(__s64 ns, __u64 least)
{
	return ns < (__s64)least ? least : ns;
}

/* grace_left is how long the end of the budget is not told yet. Whoever enforces it is told at once, for whatever it
 * waits is time beyond the budget: its reader takes up the ALARM first, and passes over the end of a budget that it
 * has raised. */
static __always_inline __s64 grace_left(const struct slot_config *c, const struct told *t, const struct left *l,
					const struct verdict *v, __u64 now)
{
	if (c->flags & FLAG_ENFORCE)
		return 0;
	if (v->alarm)
		return END_GRACE_NS;
	if (!(c->flags & FLAG_ALARM) || t->alarm != l->window + c->rearm)
		return 0;
	return (__s64)(t->alarm_at + END_GRACE_NS - now);
}

/* next_look is how long the core's timer may sleep while the server runs. In the next window there is an alarm to
 * wait for again. */
static __always_inline __u64 next_look(const struct slot_config *c, const struct told *t, const struct left *l,
				       const struct verdict *v, __s64 grace, __u64 now)
{
	__s64 next = l->window + l->period - now, due = next;

	if (l->end == S64_MAX)
		return 0;
	if ((c->flags & FLAG_ALARM) && !v->alarm && t->alarm != l->window + c->rearm)
		return at_least(l->alarm, TIMER_MIN_NS);
	if (l->end > 0)
		due = l->end;
	else if ((c->flags & (FLAG_ALARM | FLAG_ENFORCE)) && !v->end && t->end != l->window + c->budget_ns)
		due = grace;
	if (next <= 0)
		return END_CHECK_NS;
	return at_least(due < next ? due : next, TIMER_MIN_NS);
}

/* judge says what is to be told. A server that blocks has no more work: no raise would help it, and only when
 * it went beyond the budget was that an overrun. After a raise the end of the new budget is told, too. */
static __always_inline struct verdict judge(const struct slot_config *c, const struct told *t,
					    const struct left *l, enum place place, __u64 now)
{
	struct verdict v = {};
	bool over = place == PLACE_BLOCKED ? l->end < 0 : l->end <= 0;
	bool alarmed = t->alarm == l->window + c->rearm;
	__s64 grace;

	if (place != PLACE_BLOCKED && (c->flags & FLAG_ALARM) && !alarmed && l->alarm <= 0)
		v.alarm = 1;
	if (over && t->overrun != l->window)
		v.overrun = 1;
	grace = grace_left(c, t, l, &v, now);
	if (over && grace <= 0 && (c->flags & (FLAG_ALARM | FLAG_ENFORCE)) && t->end != l->window + c->budget_ns)
		v.end = 1;
	if (place != PLACE_BLOCKED)
		v.due = next_look(c, t, l, &v, grace, now);
	return v;
}

/* ended tells whether the reader was told to stop the server, which still has used up its budget. */
static __always_inline bool ended(const struct slot_config *c, const struct told *t, const struct left *l)
{
	return (c->flags & FLAG_ENFORCE) && l->end <= 0 && t->end == l->window + c->budget_ns;
}

/* A job that ended, or as many as one interval holds. */
struct job {
	__u64 jobs;
	__u64 misses;
	__u64 response;
};

/* absolute_job is the job that was released at release and ended at now. A release yet to come is no job: the
 * sleep was begun again after a signal. */
static __always_inline struct job absolute_job(__u64 release, __u64 now, __u64 deadline)
{
	struct job j = {};

	if (!release || release > now)
		return j;
	j.jobs = 1;
	j.response = now - release;
	j.misses = deadline && j.response > deadline;
	return j;
}

/* interval_job is the work from a wake-up to the next block. Late jobs run into each other: a server with
 * one job in each period had begun as many more as periods passed, and each but the last of those that
 * were past their deadline was late. */
static __always_inline struct job interval_job(__u64 release, __u64 now, __u64 deadline, __u64 period)
{
	struct job j = absolute_job(release, now, deadline);

	if (!j.misses || !period)
		return j;
	j.misses = 1 + (j.response - deadline - 1) / period;
	j.jobs = 1 + (j.response - 1) / period;
	return j;
}

/* log2_bucket of a duration: 0 is under 1 us, i is under 2^i us, the last is all beyond. */
static __always_inline __u32 log2_bucket(__u64 ns, __u32 buckets)
{
	__u64 us = ns / 1000;
	__u32 i = 0;

	while (us && i < buckets) {
		us >>= 1;
		i++;
	}
	return i < buckets ? i : buckets - 1;
}

#endif
