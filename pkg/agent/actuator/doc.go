// Package actuator has budgets enforced: it is the only writer of control group files and of scheduling
// attributes. A Backend is one way in which a kernel can be told to give a container so much CPU time in
// every period; Probe tries them and takes the best that works, never asking which version the kernel has.
//
// What the package changes it first writes into a journal on disk, with what was there before, so that
// a process that is killed at any point can be followed by another which puts everything right: what a
// server of the new table needs is set again, everything else is put back (Sweep, Restore). Groups are
// held by descriptors and by inode, so that a group which was removed, renamed or made anew is refused
// with ErrGone; what was changed in one that has only another name is put back there.
//
// Set, Throttle and Replenish are for the thread that answers overruns: they use descriptors opened
// before, allocate nothing and take no lock. They may run while any other method of the group does, but
// only on one thread at a time. All other methods are for the slow side.
package actuator
