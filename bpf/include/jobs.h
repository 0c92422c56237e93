/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Jobs of threads. Who sleeps until absolute times says itself when a job ends and when the next is released
 * (jobs.bpf.c); the other threads of its server only help it. Where there is no such thread, a job is what
 * lies between a wake-up and the next block (budget.bpf.c): work that blocks in its midst counts as several. */
#ifndef MAINSPRING_JOBS_H
#define MAINSPRING_JOBS_H

#include "task.h"

#define MAX_THREADS 16384

/* The job of a thread. */
struct thread {
	__u64 started;  /* of the thread itself: its number may be used again */
	__u64 release;  /* of the job; 0: none is under way */
	__u32 absolute; /* it sleeps until absolute times */
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct thread *find_thread(struct task_struct *p, __u32 generation)
{
	__u32 pid = p->pid;
	struct thread *t = bpf_map_lookup_elem(&threads, &pid);

	return t && t->started == p->start_time && t->generation == generation ? t : NULL;
}

static __always_inline void count_jobs(const struct server *s, const struct job *j)
{
	struct slot_state *st = s->state;

	if (!j->jobs)
		return;
	__sync_fetch_and_add(&st->jobs, j->jobs);
	if (j->misses)
		__sync_fetch_and_add(&st->misses, j->misses);
	if (j->response > st->max_response_ns)
		st->max_response_ns = j->response;
}

static __always_inline void begin_job(struct task_struct *p, __u64 release, __u32 absolute, __u32 generation)
{
	__u32 pid = p->pid;
	struct thread t = {
		.started = p->start_time, .release = release, .absolute = absolute, .generation = generation,
	};

	bpf_map_update_elem(&threads, &pid, &t, BPF_ANY);
}

static __always_inline bool has_intervals(const struct server *s)
{
	return (s->config->flags & FLAG_JOBS) && !s->told->absolute;
}

/* end_interval ends the job of a thread that blocks. */
static __always_inline void end_interval(const struct server *s, struct task_struct *p, __u64 now)
{
	struct thread *t;
	struct job j;

	if (!has_intervals(s))
		return;
	t = find_thread(p, s->config->generation);
	if (!t || !t->release)
		return;
	j = interval_job(t->release, now, s->config->deadline_ns, s->config->period_ns);
	t->release = 0;
	count_jobs(s, &j);
}

/* begin_interval begins that of one that was woken; of one that was only preempted it goes on. */
static __always_inline void begin_interval(const struct server *s, struct task_struct *p, __u64 queued)
{
	struct thread *t;

	if (!has_intervals(s))
		return;
	t = find_thread(p, s->config->generation);
	if (!t)
		begin_job(p, queued, 0, s->config->generation);
	else if (!t->release)
		t->release = queued;
}

#endif
