// Package fastpath is the process that keeps budgets: it alone writes them. Programs in the kernel tell a
// reader thread on each core that a budget is about to end, the governor of that core decides, and the
// thread writes. Nothing on that way allocates, logs, or waits for the network. The slow half of the
// process (tables, the sweep, reports) runs beside it.
package fastpath
