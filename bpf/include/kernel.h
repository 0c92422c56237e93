/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs use of the kernel: types, flags, and of its structures only the fields they read. Offsets
 * are those of the running kernel: the loader relocates each access by BTF. */
#ifndef MAINSPRING_KERNEL_H
#define MAINSPRING_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;


#define S64_MAX ((__s64)(~0ULL >> 1))

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_F_MMAPABLE = 1 << 10,
};

#define PF_KTHREAD 0x00200000

enum { CLOCK_MONOTONIC = 1, CLOCK_BOOTTIME = 7, CLOCK_TAI = 11, TIMER_ABSTIME = 1 };

/* The verifier knows it by name and size. */
struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

/* Only to ask whether the kernel has it (since 6.1). */
enum bpf_func_id {
	BPF_FUNC_ktime_get_tai_ns = 208,
};

/* Only the names: which number a controller has depends on the kernel's configuration. */
enum cgroup_subsys_id {
	cpuset_cgrp_id,
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
};

struct timerqueue_node {
	__s64 expires;
};

struct hrtimer {
	struct timerqueue_node node;
};

struct rt_bandwidth {
	__s64 rt_period;
	struct hrtimer rt_period_timer;
};

struct task_group {
	struct cgroup_subsys_state css;
	struct rt_bandwidth rt_bandwidth;
};

struct rq {
	__u64 clock;
	__u64 clock_task;
};

struct rt_rq {
	int rt_throttled;
	__u64 rt_time;
	__u64 rt_runtime;
	struct task_group *tg;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	__u64 exec_start;
	struct cfs_rq *cfs_rq;
};

struct sched_rt_entity {
	struct sched_rt_entity *parent;
	struct rt_rq *rt_rq;
};

struct sched_dl_entity {
	__u64 dl_runtime;
	__s64 runtime;
	unsigned int dl_throttled : 1;
	unsigned int dl_server : 1;
};

struct sched_info {
	unsigned long long last_arrival;
	unsigned long long last_queued;
};

struct timespec64 {
	long long tv_sec;
	long tv_nsec;
};

struct timens_offsets {
	struct timespec64 monotonic;
	struct timespec64 boottime;
};

struct time_namespace {
	struct timens_offsets offsets;
};

struct nsproxy {
	struct time_namespace *time_ns;
};

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int pid;
	int tgid;
	int prio;
	int normal_prio;
	__u64 start_time;
	struct sched_entity se;
	struct sched_rt_entity rt;
	struct sched_dl_entity dl;
	struct task_group *sched_task_group;
	struct sched_info sched_info;
	struct css_set *cgroups;
	struct nsproxy *nsproxy;
};

#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#endif
