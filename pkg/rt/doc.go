// Package rt decides which real-time containers may share a core. A container is a server: at most a
// budget of CPU time in every period (a constant bandwidth server, Abeni and Buttazzo, RTSS 1998, as
// the kernel's SCHED_DEADLINE and HCBS implement it). Each server has two budgets, after Vestal (RTSS
// 2007): the usual one, Low, and the one it may be raised to when it overruns, High.
//
// Everything here is pure: no clock, no client, no logger, no randomness. Arguments are never changed.
//
// Units and ranges. Times are int64 microseconds, bandwidths are PPM: parts per million of one core.
// Arithmetic is in integers, and every rounding is to the safe side: what a server needs is rounded up,
// what a core has is rounded down. With periods up to MaxPeriod and budgets up to their periods no
// product here exceeds 2^63; sums saturate at Unlimited, so nonsense is refused and never wraps
// around. Functions accept any Server; one that fails Validate is never admitted.
//
// docs/admission.md says which test applies when, and what the simulator in rt/sim showed about each.
package rt
