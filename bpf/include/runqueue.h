/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MAINSPRING_RUNQUEUE_H
#define MAINSPRING_RUNQUEUE_H

#define RUNQUEUE_BUCKETS 24

/* How long threads of a slot waited on the run queue. Bucket i is of less than 2^i us, the last of the rest. */
struct runqueue {
	unsigned long long count[RUNQUEUE_BUCKETS];
	unsigned long long sum_ns;
	unsigned long long max_ns;
};

#endif
