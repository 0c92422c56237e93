/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Lets BPF_PROG_TEST_RUN call each decision with values, and carries the types of all that user space shares
 * with the programs. */
#include "../include/maps.h"
#include "../include/runqueue.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct layout {
	struct slot_config config;
	struct slot_state state;
	struct event event;
	struct tracked tracked;
	struct runqueue runqueue;
	enum source source;
	enum flags flags;
	enum kind kind;
} layout;

struct own_window_args {
	__u64 start, period, queued, now;
	__u64 window;
};

SEC("syscall")
int decide_own_window(struct own_window_args *a)
{
	a->window = own_window(a->start, a->period, a->queued, a->now);
	return 0;
}

struct split_args {
	__u64 from, to, period, since, now;
	struct span span;
};

SEC("syscall")
int decide_split(struct split_args *a)
{
	a->span = split(a->from, a->to, a->period, a->since, a->now);
	return 0;
}

struct clean_args {
	__u64 used, limit, begun, idle;
	__u32 clean, windows;
	__u32 after, next;
	__u32 stopped, pad;
};

SEC("syscall")
int decide_clean(struct clean_args *a)
{
	struct span s = { .begun = a->begun, .idle = a->idle };

	a->after = clean_after(a->clean, a->used, a->limit, &s, a->stopped);
	a->next = clean_next(a->after, a->windows);
	return 0;
}

struct lost_args {
	__u64 used, budget;
	__u64 lost;
};

SEC("syscall")
int decide_lost(struct lost_args *a)
{
	a->lost = lost_windows(a->used, a->budget);
	return 0;
}

struct part_args {
	__u64 whole, part;
	__s64 rest, left;
	__u64 sharers, used;
	__s64 each;
};

SEC("syscall")
int decide_part(struct part_args *a)
{
	a->sharers = sharers(a->whole, a->part);
	a->used = used_of_whole(a->whole, a->part, a->rest);
	a->each = of_each(a->left, a->sharers);
	return 0;
}

struct judge_args {
	__u64 budget, told_alarm, alarm_at, told_end, told_overrun;
	__s64 alarm, end;
	__u64 window, period, now;
	__u32 flags, rearm, place;
	__u8 tell_alarm, tell_overrun, tell_end, pad;
	__u64 due;
};

SEC("syscall")
int decide_judge(struct judge_args *a)
{
	struct slot_config c = { .budget_ns = a->budget, .flags = a->flags, .rearm = a->rearm };
	struct told t = {
		.alarm = a->told_alarm, .alarm_at = a->alarm_at, .end = a->told_end, .overrun = a->told_overrun,
	};
	struct left l = { .alarm = a->alarm, .end = a->end, .window = a->window, .period = a->period };
	struct verdict v = judge(&c, &t, &l, a->place, a->now);

	a->tell_alarm = v.alarm;
	a->tell_overrun = v.overrun;
	a->tell_end = v.end;
	a->due = v.due;
	return 0;
}

struct ended_args {
	__u64 budget, told_end, window;
	__s64 end;
	__u32 flags, ended;
};

SEC("syscall")
int decide_ended(struct ended_args *a)
{
	struct slot_config c = { .budget_ns = a->budget, .flags = a->flags };
	struct told t = { .end = a->told_end };
	struct left l = { .end = a->end, .window = a->window };

	a->ended = ended(&c, &t, &l);
	return 0;
}

struct job_args {
	__u64 release, now, deadline, period;
	__u64 interval; /* 0: of a thread that sleeps until absolute times */
	struct job job;
};

SEC("syscall")
int decide_job(struct job_args *a)
{
	if (a->interval)
		a->job = interval_job(a->release, a->now, a->deadline, a->period);
	else
		a->job = absolute_job(a->release, a->now, a->deadline);
	return 0;
}

struct bucket_args {
	__u64 ns;
	__u32 buckets, bucket;
};

SEC("syscall")
int decide_bucket(struct bucket_args *a)
{
	a->bucket = log2_bucket(a->ns, a->buckets);
	return 0;
}

/* The address of the calling thread's deadline entity: what the kernel hands to sched_dl_throttle_tp. */
struct entity_args {
	__u64 address;
};

SEC("syscall")
int deadline_entity(struct entity_args *a)
{
	a->address = (__u64)bpf_get_current_task() + bpf_core_field_offset(struct task_struct, dl);
	return 0;
}
