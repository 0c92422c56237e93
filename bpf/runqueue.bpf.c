/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Measures how long threads of servers wait for their core. */
#include "include/runqueue.h"
#include "include/task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct runqueue);
} runqueues SEC(".maps");

SEC("tp_btf/sched_switch")
int BPF_PROG(runqueue_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now, ns;
	struct tracked *group;
	struct runqueue *q;
	__u32 slot, i;

	if (is_kernel(next))
		return 0;
	group = find_group(next);
	if (!group)
		return 0;
	slot = group->slot;
	q = bpf_map_lookup_elem(&runqueues, &slot);
	if (!q)
		return 0;
	now = bpf_ktime_get_ns();
	ns = now - queued_at(next, clock_offset(next, now), now);
	i = log2_bucket(ns, RUNQUEUE_BUCKETS);
	if (i >= RUNQUEUE_BUCKETS) /* for the verifier */
		return 0;
	__sync_fetch_and_add(&q->count[i], 1);
	__sync_fetch_and_add(&q->sum_ns, ns);
	if (ns > q->max_ns)
		q->max_ns = ns;
	return 0;
}
