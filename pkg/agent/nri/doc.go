// Package nri is the agent's plugin of the container runtime (Node Resource Interface): it sees each container
// before it is made. Real-time containers are made on their core, with a budget that the fast path has made
// room for at the levels above, so that an application's own sched_setscheduler(SCHED_FIFO) finds a budget
// at its first instruction.
//
// A container is known by its pod's UID and by its claim (the CDI device that the kubelet passes), not by its
// name alone: a runtime that restores a checkpoint may pass another name.
//
// The runtime waits for the answer with a lock that stops every other container of the node, and drops a
// plugin that takes longer than two seconds. So an answer takes at most one second, containers that are not
// ours are let through at once, and the only container that is ever refused is one with a claim of ours
// whose core is not known here. A server that is not in the node's table yet is waited for briefly (the
// driver has waited longer before); then the container is made on the core of its claim without a budget,
// which the fast path gives it as soon as the table has it.
package nri
