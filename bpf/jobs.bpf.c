/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the boundaries of jobs. A thread that sleeps until absolute times says itself when a job ends and when
 * the next is released; the other threads of its server only help it. Where there is no such thread, a
 * job is what lies between a wake-up and the next block: work that blocks in its midst counts as several. */
#include "include/task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

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

static __always_inline bool find_jobs(struct server *s, struct task_struct *p)
{
	struct tracked *group = find_group(p);

	return group && find_server(s, group->slot) && (s->config->flags & FLAG_JOBS);
}

static __always_inline struct thread *find_thread(struct task_struct *p, __u32 generation)
{
	__u32 pid = p->pid;
	struct thread *t = bpf_map_lookup_elem(&threads, &pid);

	return t && t->started == p->start_time && t->generation == generation ? t : NULL;
}

static __always_inline void count(const struct server *s, const struct job *j)
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

static __always_inline void begin(struct task_struct *p, __u64 release, __u32 absolute, __u32 generation)
{
	__u32 pid = p->pid;
	struct thread t = {
		.started = p->start_time, .release = release, .absolute = absolute, .generation = generation,
	};

	bpf_map_update_elem(&threads, &pid, &t, BPF_ANY);
}

/* Arguments of the tracepoint syscalls/sys_enter_clock_nanosleep, see its format file. */
struct nanosleep_args {
	__u64 common;
	__u64 number;
	__u64 clock;
	__u64 flags;
	__u64 request;
	__u64 remain;
};

struct timespec {
	__s64 sec;
	__s64 nsec;
};

SEC("tracepoint/syscalls/sys_enter_clock_nanosleep")
int jobs_sleep(struct nanosleep_args *args)
{
	struct task_struct *p = bpf_get_current_task_btf();
	__u64 now = bpf_ktime_get_ns();
	struct timespec until;
	struct thread *t;
	struct server s;
	struct job j;

	if ((int)args->clock != CLOCK_MONOTONIC || !(args->flags & TIMER_ABSTIME) || !find_jobs(&s, p))
		return 0;
	if (bpf_probe_read_user(&until, sizeof(until), (void *)args->request))
		return 0;
	t = find_thread(p, s.config->generation);
	if (t && t->absolute) {
		j = absolute_job(t->release, now, s.config->deadline_ns);
		count(&s, &j);
	}
	s.told->absolute = 1;
	begin(p, until.sec * 1000000000ULL + until.nsec, 1, s.config->generation);
	return 0;
}

/* block ends the job of a thread that does not say itself when. */
static __always_inline void block(struct task_struct *p, __u64 now)
{
	struct thread *t;
	struct server s;
	struct job j;

	if (!find_jobs(&s, p) || s.told->absolute)
		return;
	t = find_thread(p, s.config->generation);
	if (!t || !t->release)
		return;
	j = interval_job(t->release, now, s.config->deadline_ns, s.config->period_ns);
	t->release = 0;
	count(&s, &j);
}

static __always_inline void wake(struct task_struct *p, __u64 now)
{
	struct thread *t;
	struct server s;

	if (!find_jobs(&s, p) || s.told->absolute)
		return;
	t = find_thread(p, s.config->generation);
	if (!t)
		begin(p, queued_at(p, now), 0, s.config->generation);
	else if (!t->absolute && !t->release)
		t->release = queued_at(p, now);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(jobs_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now = bpf_ktime_get_ns();

	if (!preempt && prev->__state && prev->pid)
		block(prev, now);
	if (next->pid)
		wake(next, now);
	return 0;
}
