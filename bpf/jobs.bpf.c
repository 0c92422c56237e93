/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the boundaries of jobs of threads that sleep until absolute times: the next release is what they ask
 * for, and the job before ends there. */
#include "include/jobs.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

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

static __always_inline bool find_jobs(struct server *s, struct task_struct *p)
{
	struct tracked *group = find_group(p);

	return group && find_server(s, group->slot) && (s->config->flags & FLAG_JOBS);
}

/* on_host is a time of a thread's CLOCK_MONOTONIC by ours. A container may have a clock of its own: one that was restored
 * from a checkpoint does not see for how long it stood still. */
static __always_inline __u64 on_host(struct task_struct *p, const struct timespec *own)
{
	struct nsproxy *ns = p->nsproxy;
	__u64 time = own->sec * 1000000000ULL + own->nsec;
	struct timens_offsets *offsets;

	if (!ns || !bpf_core_field_exists(ns->time_ns))
		return time;
	offsets = &ns->time_ns->offsets;
	return time - (offsets->monotonic.tv_sec * 1000000000LL + offsets->monotonic.tv_nsec);
}

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
		count_jobs(&s, &j);
	}
	s.told->absolute = 1;
	begin_job(p, on_host(p, &until), 1, s.config->generation);
	return 0;
}
