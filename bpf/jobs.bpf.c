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

/* knows says whether times of a clock can be told as ours. CLOCK_REALTIME cannot: no helper reads it. */
static __always_inline bool knows(int clock)
{
	return clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME ||
	       (clock == CLOCK_TAI && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_ktime_get_tai_ns));
}

/* ahead is how far a thread's own clock is ahead of the machine's. A container may have clocks of its own: one that was
 * restored from a checkpoint does not see for how long it stood still. */
static __always_inline __s64 ahead(struct task_struct *p, int clock)
{
	struct nsproxy *ns = p->nsproxy;
	struct timens_offsets *offsets;

	if (!ns || !bpf_core_field_exists(ns->time_ns))
		return 0;
	offsets = &ns->time_ns->offsets;
	if (clock == CLOCK_MONOTONIC)
		return offsets->monotonic.tv_sec * 1000000000LL + offsets->monotonic.tv_nsec;
	if (clock == CLOCK_BOOTTIME)
		return offsets->boottime.tv_sec * 1000000000LL + offsets->boottime.tv_nsec;
	return 0;
}

/* on_host is a time of one of a thread's clocks by our CLOCK_MONOTONIC, which is now. */
static __always_inline __u64 on_host(struct task_struct *p, int clock, const struct timespec *own, __u64 now)
{
	__u64 time = own->sec * 1000000000ULL + own->nsec - ahead(p, clock);

	if (clock == CLOCK_BOOTTIME)
		return time - (bpf_ktime_get_boot_ns() - now);
	if (clock == CLOCK_TAI && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_ktime_get_tai_ns))
		return time - (bpf_ktime_get_tai_ns() - now);
	return time;
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

	if (!knows(args->clock) || !(args->flags & TIMER_ABSTIME) || !find_jobs(&s, p))
		return 0;
	if (bpf_probe_read_user(&until, sizeof(until), (void *)args->request))
		return 0;
	t = find_thread(p, s.config->generation);
	if (t && t->absolute) {
		j = absolute_job(t->release, now, s.config->deadline_ns);
		count_jobs(&s, &j);
	}
	s.told->absolute = 1;
	begin_job(p, on_host(p, args->clock, &until, now), 1, s.config->generation);
	return 0;
}
