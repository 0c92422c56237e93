/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* To whom the groups belong that come to a core again and again. */
#ifndef MAINSPRING_FOUND_H
#define MAINSPRING_FOUND_H

#include "task.h"

/* What was last found of a group on this core. */
struct found {
	__u64 group;   /* where the kernel has it */
	__u64 changes; /* of groups until then */
	struct tracked tracked;
	__u64 is; /* tracked */
};

#define MAX_FOUND 64

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_FOUND);
	__type(key, __u32);
	__type(value, struct found);
} founds SEC(".maps");

/* known_group is find_group for who comes to the core again and again: from the thread to its cgroup's number and to what that is tracked as are
 * five or six reads of memory that is in no cache by then. A group that goes and another one in its place are one to us, until groups
 * changes: it does before that one is tracked, and when the former is let go. */
static __always_inline struct tracked *known_group(struct task_struct *p, const void *fixed)
{
	/* No program may compute with a pointer, but it may with how far one is from another, which is always the same. */
	__u64 group = (__u64)css_of(p) - (__u64)fixed, now;
	__u32 at = (group * 0x9e3779b97f4a7c15ULL) >> 58, zero = 0;
	__u64 *n = bpf_map_lookup_elem(&changes, &zero);
	struct found *f = bpf_map_lookup_elem(&founds, &at);
	struct tracked *t;

	if (!n || !f)
		return find_group(p);
	if (f->group != group || f->changes != *n) {
		now = __sync_fetch_and_add(n, 0); /* before it is looked for, also where a core may read in another order */
		t = find_group(p);
		f->group = group;
		f->changes = now;
		f->is = t != NULL;
		if (t)
			f->tracked = *t;
	}
	return f->is ? &f->tracked : NULL;
}

#endif
