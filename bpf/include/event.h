/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The one definition of what the programs and their reader share. pkg/agent/ebpf holds the same layout in Go,
 * and a test compares the two. All times are CLOCK_MONOTONIC nanoseconds. */
#ifndef MAINSPRING_EVENT_H
#define MAINSPRING_EVENT_H

/* How many servers a node may have (table.MaxServers). */
#define MAX_SLOTS 2048

/* Where the budget that is left is read. */
enum source {
	SOURCE_OWN = 0,      /* the program's own account: windows of one period from the first use */
	SOURCE_RT_GROUP = 1, /* task_group->rt_rq[cpu]->rt_time, of every level up to the root */
	SOURCE_DEADLINE = 2, /* task->dl.runtime */
};

enum flags {
	FLAG_LIVE = 1,    /* the slot is in use */
	FLAG_ALARM = 2,   /* tell ALARM; without it the slot is only counted */
	FLAG_RAISED = 4,  /* tell CLEAN */
	FLAG_ENFORCE = 8, /* tell END and, after it, WINDOW: the budget is enforced by the reader */
	FLAG_JOBS = 16,   /* watch job boundaries for deadline misses */
};

/* Written by user space, read by the programs: memory that both map. */
struct slot_config {
	__u64 budget_ns;   /* the budget in force */
	__u64 alarm_ns;    /* use from which to tell: budget_ns less the lead, or runtime_low in mode Reserved */
	__u64 clean_ns;    /* a window with at most this use is clean */
	__u64 period_ns;
	__u64 deadline_ns; /* of a job, from its release */
	__u64 whole_ns;    /* SOURCE_DEADLINE: what threads share in equal parts; 0: each has a budget of its own */
	__u32 clean_windows; /* consecutive clean windows after which CLEAN is told */
	__u32 source;
	__u32 flags;
	__u32 generation;  /* changes when the slot changes hands: events of the former holder are void */
	__u32 rearm;       /* change it to be told ALARM again in the window under way */
	__u32 core;        /* whose ring the slot's events go to */
};

/* Written by the programs, read by user space. */
struct slot_state {
	__u64 window_start; /* of the window under way, own account */
	__u64 used_ns;      /* in that window */
	__u64 total_ns;     /* CPU time in all */
	__u64 max_used_ns;  /* of any window */
	__u64 windows;      /* begun */
	__u64 overruns;     /* windows in which the budget was used up with work pending */
	__u64 throttles;    /* seen: of the kernel, or ENDs told for FLAG_ENFORCE */
	__u64 level_throttles; /* by a group above the container's */
	__u64 last_overrun; /* 0: never */
	__u64 last_seen;    /* last switch in or out */
	__u64 jobs;
	__u64 misses;       /* jobs that ended after their deadline */
	__u64 max_response_ns;
	__u32 clean;        /* consecutive clean windows */
	__u32 running;      /* threads on a CPU now */
};

enum kind {
	KIND_ALARM = 1,     /* alarm_ns of the budget is used and the server runs on */
	KIND_END = 2,       /* the budget is used up with work pending */
	KIND_WINDOW = 3,    /* the next window begins: replenish */
	KIND_CLEAN = 4,     /* a window begins after clean_windows clean ones */
	KIND_THROTTLED = 5, /* the kernel stopped the server before ALARM was told, or at a level above it, or for
			     * whole windows to come */
	KIND_AGAIN = 6,     /* real-time though the reader was told a while ago to stop it */
};

struct event {
	__u64 instant;     /* when it was due: for ALARM and END the exact end of that budget */
	__u64 detected;    /* when the program saw it */
	__u64 window;      /* start of the window */
	__u64 used_ns;     /* in it, by the source */
	__u32 slot;
	__u32 generation;
	__u32 kind;
	__u32 cpu;
};

#endif
