/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Watches the budgets of servers: at every context switch it settles the account of who stops and arms the
 * core's timer for the moment when the budget of who begins to run needs an answer. */
#include "include/found.h"
#include "include/jobs.h"
#include "include/source.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set by the loader. timer_flags: BPF_F_TIMER_CPU_PIN where the kernel knows it. dl_tracepoint: throttled
 * DEADLINE threads are counted by dlthrottle.bpf.c. watch_jobs: jobs are looked for. */
const volatile __u64 timer_flags = 0;
const volatile bool dl_tracepoint = false;
const volatile bool watch_jobs = false;

/* A process that is to be hidden as some kernels hide one, in tests; 0: none. */
const volatile __u32 hide = 0;

/* What a core runs, and when it is a server's: since when. */
struct core {
	__u64 since;
	__u64 armed; /* when its timer fires; 0: it does not */
	__s64 offset; /* of our clock to that of the run queue */
	__u64 own;
	__u32 slot;
	__u32 generation;
	__u32 pid;
	__u32 active;
	__u32 process; /* of pid */
	__u32 hidden;  /* the process of which a thread was not seen to leave; 0: none */
	__u64 _pad;    /* to a cache line */
};

/* How often a core is looked at while a thread runs on it that will not be seen to leave. */
#define WATCH_NS 200000

struct timer {
	struct bpf_timer t;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, struct core);
} cores SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, struct timer);
} core_timers SEC(".maps");

/* Tell WINDOW to those whose budget the reader enforces. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct timer);
} slot_timers SEC(".maps");

/* restart clears a slot that has changed hands. */
static __always_inline void restart(struct server *s)
{
	__builtin_memset(s->state, 0, sizeof(*s->state));
	__builtin_memset(s->told, 0, sizeof(*s->told));
	s->told->generation = s->config->generation;
	s->told->clean_next = s->config->clean_windows;
}

/* close_window settles the window that ended. Of several cores only the one that moved the start does. */
static __always_inline void close_window(struct server *s, __u64 window, const struct span *span, __u64 now)
{
	struct slot_state *st = s->state;
	__u64 used = st->used_ns;

	st->used_ns = span->after;
	st->windows += span->begun;
	if (used > st->max_used_ns)
		st->max_used_ns = used;
	st->clean = clean_after(st->clean, used, s->config->clean_ns, span, s->told->stopped);
	s->told->stopped = 0;
	if (st->clean < s->config->clean_windows) {
		s->told->clean_next = s->config->clean_windows;
		return;
	}
	if (!(s->config->flags & FLAG_RAISED) || st->clean < s->told->clean_next)
		return;
	s->told->clean_next = clean_next(st->clean, s->config->clean_windows);
	emit(s, KIND_CLEAN, window, now, window, used);
}

/* settle charges the time since since to the server, and begins the next window when the one under way has
 * ended. */
static __always_inline void settle(struct server *s, const struct running *r, __u64 since, __u64 queued)
{
	struct slot_state *st = s->state;
	__u64 from = st->window_start, to = window_of(s, r, queued);
	struct span span;

	if (to < from) /* a period timer that is late, or another one than before */
		to = from;
	span = split(from, to, s->config->period_ns, since, r->now);
	st->last_seen = r->now;
	__sync_fetch_and_add(&st->total_ns, r->now - since);
	__sync_fetch_and_add(&st->used_ns, span.before);
	if (!span.begun)
		return;
	if (!from) {
		st->window_start = to;
		st->windows = 1;
		st->used_ns = span.after;
		return;
	}
	if (__sync_val_compare_and_swap(&st->window_start, from, to) == from)
		close_window(s, to, &span, r->now);
}

static int on_slot_timer(void *map, __u32 *key, struct timer *t)
{
	struct server s;
	__u64 now = bpf_ktime_get_ns(), window;

	if (!find_server(&s, *key) || s.told->generation != s.config->generation)
		return 0;
	if (!(s.config->flags & FLAG_ENFORCE))
		return 0;
	window = s.told->overrun + s.config->period_ns;
	emit(&s, KIND_WINDOW, window, now, window, 0);
	return 0;
}

static __always_inline void tell_end(struct server *s, const struct left *l, __u64 now)
{
	__u64 window = l->window, end = l->window + l->period;
	__u64 told = s->told->end, key = window + s->config->budget_ns;
	struct timer *t;

	if (__sync_val_compare_and_swap(&s->told->end, told, key) != told)
		return;
	s->told->end_at = now;
	s->told->again = 0;
	emit(s, KIND_END, now + l->end, now, window, l->used);
	if (!(s->config->flags & FLAG_ENFORCE))
		return;
	if (s->told->throttled != window) { /* and not once more because its budget was changed */
		s->told->throttled = window;
		__sync_fetch_and_add(&s->state->throttles, 1);
	}
	t = bpf_map_lookup_elem(&slot_timers, &s->slot);
	if (t)
		bpf_timer_start(&t->t, end > now ? end - now : 0, timer_flags);
}

/* tell acts on a verdict. */
static __always_inline void tell(struct server *s, const struct left *l, const struct verdict *v, __u64 now)
{
	if (v->alarm) {
		__u64 told = s->told->alarm, key = l->window + s->config->rearm;

		s->told->alarm_at = now;
		if (__sync_val_compare_and_swap(&s->told->alarm, told, key) == told)
			emit(s, KIND_ALARM, now + l->alarm, now, l->window, l->used);
	}
	if (v->overrun) {
		__u64 told = s->told->overrun;

		if (__sync_val_compare_and_swap(&s->told->overrun, told, l->window) == told) {
			s->state->last_overrun = now + l->end;
			__sync_fetch_and_add(&s->state->overruns, 1);
		}
	}
	if (v->end)
		tell_end(s, l, now);
}

/* tell_throttled counts what the kernel did, once in a window and level. To a server whose work is done it does
 * nothing, unless it lets it pay a debt for whole windows to come. */
static __always_inline void tell_throttled(struct server *s, const struct running *r, const struct left *l,
					   enum place place)
{
	__u64 lost = s->config->source == SOURCE_OWN ? 0 : lost_windows(l->used, s->config->budget_ns);
	struct sched_rt_entity *se = &r->task->rt;
	bool own = is_deadline(r->task) && !dl_tracepoint && dl_throttled(r->task);
	bool above = false, alarmed = s->told->alarm == l->window + s->config->rearm;

	if (has_rt_groups() && is_rt(r->task)) {
		struct rt_rq *mine = own_rt_rq(r);

		for (int i = 0; i < MAX_LEVELS && se; i++) {
			struct rt_rq *q = se->rt_rq;

			if (q->rt_throttled && q == mine)
				own = true;
			else if (q->rt_throttled)
				above = true;
			se = se->parent;
		}
	}
	if (own && lost)
		s->told->stopped = 1;
	if (place == PLACE_BLOCKED) {
		own = own && lost;
		above = false;
	}
	if (own && s->told->throttled != l->window) {
		s->told->throttled = l->window;
		__sync_fetch_and_add(&s->state->throttles, 1);
		if ((!alarmed || lost) && (s->config->flags & FLAG_ALARM)) {
			s->told->alarm = l->window + s->config->rearm; /* of the same use */
			emit(s, KIND_THROTTLED, r->now + l->end, r->now, l->window, l->used);
		}
	}
	if (above && s->told->levels != l->window) {
		s->told->levels = l->window;
		__sync_fetch_and_add(&s->state->level_throttles, 1);
		if (s->config->flags & FLAG_ALARM)
			emit(s, KIND_THROTTLED, r->now + l->end, r->now, l->window, l->used);
	}
}

/* hold tells of a server that is real-time though its reader was told to stop it: it has set its policy itself, or the reader
 * is late. */
static __always_inline void hold(struct server *s, const struct running *r, const struct left *l, struct verdict *v)
{
	if (!ended(s->config, s->told, l) || s->told->again >= STOPPED_TIMES)
		return;
	if (wants_rt(r->task) && r->now - s->told->end_at >= STOPPED_NS) {
		s->told->end_at = r->now;
		s->told->again++;
		emit(s, KIND_AGAIN, r->now + l->end, r->now, l->window, l->used);
	}
	if (!v->due || v->due > STOPPED_LOOK_NS)
		v->due = wants_rt(r->task) ? STOPPED_NS : STOPPED_LOOK_NS;
}

/* look settles, judges and tells, and returns how long nothing more needs to be seen. */
static __always_inline __u64 look(struct server *s, const struct running *r, __u64 since, __u64 queued,
				  enum place place)
{
	struct left left;
	struct verdict v;
	__u32 n = s->state->running;

	settle(s, r, since, queued);
	left = measure(s, r);
	if (place == PLACE_OUT || place == PLACE_BLOCKED)
		tell_throttled(s, r, &left, place);
	v = judge(s->config, s->told, &left, place, r->now);
	tell(s, &left, &v, r->now);
	if (place == PLACE_IN || place == PLACE_TIMER)
		hold(s, r, &left, &v);
	if (s->config->source == SOURCE_OWN && n > 1) /* threads on other cores use it up with us */
		v.due = at_least(v.due / n, TIMER_MIN_NS);
	return v.due;
}

/* arm starts the core's timer, unless it fires early enough anyway: who is woken too early looks again. It is
 * never cancelled. */
static __always_inline void arm(struct core *core, struct timer *t, __u64 now, __u64 rest)
{
	if (!rest || (core->armed > now && core->armed <= now + rest))
		return;
	if (!bpf_timer_start(&t->t, rest, timer_flags))
		core->armed = now + rest;
}

static __always_inline void leave(struct core *core, struct task_struct *prev, bool runnable, __u64 now)
{
	struct running r = { .task = prev, .now = now, .own = core->own };
	struct server s;

	core->active = 0;
	if (!find_server(&s, core->slot) || core->generation != s.config->generation ||
	    core->generation != s.told->generation)
		return;
	look(&s, &r, core->since, core->since, runnable ? PLACE_OUT : PLACE_BLOCKED);
	if (watch_jobs && !runnable)
		end_interval(&s, prev, now);
	if (s.state->running)
		__sync_fetch_and_add(&s.state->running, -1);
}

/* occupy has the core run a thread that is on it since then, and finds its server; false when it has none. */
static __always_inline bool occupy(struct core *core, struct server *s, struct task_struct *p, __u64 since)
{
	struct tracked *group = known_group(p, core);

	if (!group || !find_server(s, group->slot))
		return false;
	if (s->told->generation != s->config->generation)
		restart(s);
	core->own = group->own;
	core->slot = group->slot;
	core->generation = s->config->generation;
	core->since = since;
	core->active = 1;
	__sync_fetch_and_add(&s->state->running, 1);
	return true;
}

static __always_inline void enter(struct core *core, __u32 cpu, struct task_struct *next, __u64 now)
{
	struct running r = { .task = next, .now = now };
	__u64 rest, queued;
	struct timer *t;
	struct server s;

	if (!occupy(core, &s, next, now))
		return;
	core->offset = clock_offset(next, now);
	r.own = core->own;
	queued = queued_at(next, core->offset, now);
	if (watch_jobs)
		begin_interval(&s, next, queued);
	rest = look(&s, &r, now, queued, PLACE_IN);
	t = bpf_map_lookup_elem(&core_timers, &cpu);
	if (t)
		arm(core, t, now, rest);
}

static __always_inline void remember(struct core *core, struct task_struct *p)
{
	core->pid = p->pid;
	core->process = p->tgid;
}

/* catch_up takes up a thread that was not seen to come. Some kernels hide a process from tracing, such as the one that
 * supervises a virtual machine: when one of its threads leaves a core no program is called. Which process that is, is
 * learnt here. A thread that has called execve() has only another number. */
static __always_inline void catch_up(struct core *core, __u32 cpu, struct task_struct *p, __u64 now)
{
	bool same = core->process == p->tgid;
	struct server s;
	__u64 *n;

	if (core->active && !same)
		return;
	if (!same)
		core->hidden = core->process;
	remember(core, p);
	if (core->active || is_kernel(p) || !occupy(core, &s, p, arrived_at(p, core->offset, now)))
		return;
	if (watch_jobs)
		begin_interval(&s, p, core->since);
	n = bpf_map_lookup_elem(&unseen, &cpu);
	if (n)
		__sync_fetch_and_add(n, 1);
}

static int on_core_timer(void *map, __u32 *key, struct timer *t)
{
	struct core *core = bpf_map_lookup_elem(&cores, key);
	struct task_struct *p = bpf_get_current_task_btf();
	struct server s;
	struct rq *rq;
	__u64 now = bpf_ktime_get_ns(), rest;

	if (!core)
		return 0;
	core->armed = 0;
	if (p->pid != core->pid)
		catch_up(core, *key, p, now);
	if (p->tgid == core->hidden && !core->active)
		arm(core, t, now, WATCH_NS);
	if (!core->active || p->pid != core->pid || !find_server(&s, core->slot))
		return 0;
	if (s.told->generation != s.config->generation || core->generation != s.config->generation)
		return 0;
	rq = rq_of(p);
	struct running r = { .task = p, .now = now, .own = core->own };

	r.pending = (now - core->offset - rq->clock) + (rq->clock_task - p->se.exec_start);
	rest = look(&s, &r, core->since, core->since, PLACE_TIMER);
	core->since = now;
	arm(core, t, now, rest);
	return 0;
}

/* watch has the core's timer look who runs after a thread whose leaving will not be seen. */
static __always_inline void watch(struct core *core, __u32 cpu, struct task_struct *p, __u64 now)
{
	struct timer *t = bpf_map_lookup_elem(&core_timers, &cpu);

	core->offset = clock_offset(p, now);
	if (t)
		arm(core, t, now, WATCH_NS);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(budget_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct core *core = bpf_map_lookup_elem(&cores, &cpu);
	__u64 now;

	if (!core || (hide && prev->tgid == hide))
		return 0;
	now = bpf_ktime_get_ns();
	if (prev->pid != core->pid) {
		core->offset = clock_offset(prev, now);
		catch_up(core, cpu, prev, now);
	}
	if (core->active)
		leave(core, prev, preempt || !prev->__state, now);
	remember(core, next);
	if (is_kernel(next))
		return 0;
	if (core->process == core->hidden)
		watch(core, cpu, next, now);
	enter(core, cpu, next, now); /* also then: by now the number may be that of a container's process */
	return 0;
}

/* What budget_init is to do: initialise the timer of a core or a slot, and try it. */
struct init_args {
	__u32 core;
	__u32 slot;
	__u32 which; /* 0: of the core, 1: of the slot */
	__u32 try;   /* start it, to see whether the kernel knows timer_flags */
};

#define EBUSY 16

/* The kernel lets only such a program initialise timers that the others start. */
SEC("syscall")
int budget_init(struct init_args *args)
{
	__u32 core = args->core, slot = args->slot;
	struct timer *t;
	long err;

	if (args->which == 0) {
		t = bpf_map_lookup_elem(&core_timers, &core);
		if (!t)
			return -1;
		err = bpf_timer_init(&t->t, &core_timers, CLOCK_MONOTONIC);
		if (!err)
			err = bpf_timer_set_callback(&t->t, on_core_timer);
	} else {
		t = bpf_map_lookup_elem(&slot_timers, &slot);
		if (!t)
			return -1;
		err = bpf_timer_init(&t->t, &slot_timers, CLOCK_MONOTONIC);
		if (!err)
			err = bpf_timer_set_callback(&t->t, on_slot_timer);
	}
	if (!err && args->try)
		err = bpf_timer_start(&t->t, TIMER_MIN_NS, timer_flags);
	return err == -EBUSY ? 0 : err;
}
