/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Tells of DEADLINE threads at the moment when the kernel throttles them, where it has a tracepoint for that
 * (mainline from about 7.1). It is a raw tracepoint, not tp_btf: so the verifier passes it on kernels that
 * lack the tracepoint, too, and tests run it there. */
#include "include/task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* read_cgroup_id is cgroup_id of a thread whose address nobody vouches for. */
static __always_inline __u64 read_cgroup_id(struct task_struct *p)
{
	int subsys;
	struct css_set *set;
	struct cgroup_subsys_state *css = NULL;

	if (identity == IDENTITY_CPU)
		return BPF_CORE_READ(p, sched_task_group, css.cgroup, kn, id);
	subsys = bpf_core_enum_value(enum cgroup_subsys_id, cpuset_cgrp_id);
	set = BPF_CORE_READ(p, cgroups);
	bpf_probe_read_kernel(&css, sizeof(css), &set->subsys[0] + subsys);
	return BPF_CORE_READ(css, cgroup, kn, id);
}

SEC("raw_tp/sched_dl_throttle_tp")
int dl_throttle(__u64 *args)
{
	__u64 entity = args[0], id, now = bpf_ktime_get_ns(), window;
	struct sched_dl_entity *dl = (void *)entity;
	struct task_struct *p = (void *)(entity - bpf_core_field_offset(struct task_struct, dl));
	struct tracked *group;
	struct server s;
	__u64 whole, part, used;
	bool lost;

	if (BPF_CORE_READ_BITFIELD_PROBED(dl, dl_server))
		return 0;
	id = read_cgroup_id(p);
	group = id ? bpf_map_lookup_elem(&groups, &id) : NULL;
	if (!group || !find_server(&s, group->slot) || s.config->generation != s.told->generation)
		return 0;
	window = s.state->window_start;
	if (s.told->throttled == window)
		return 0;
	s.told->throttled = window;
	__sync_fetch_and_add(&s.state->throttles, 1);
	whole = s.config->whole_ns;
	part = BPF_CORE_READ(dl, dl_runtime);
	used = used_of_whole(whole, part, BPF_CORE_READ(dl, runtime));
	lost = lost_windows(used, s.config->budget_ns);
	if (lost)
		s.told->stopped = 1;
	if (!(s.config->flags & FLAG_ALARM) || (s.told->alarm == window + s.config->rearm && !lost))
		return 0;
	s.told->alarm = window + s.config->rearm; /* of the same use */
	emit(&s, KIND_THROTTLED, now + of_each((__s64)s.config->budget_ns - (__s64)used, sharers(whole, part)), now, window, used);
	return 0;
}
