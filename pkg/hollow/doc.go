// Package hollow plays the node agents of simulated nodes, as kubemark does for kubelets: one process
// publishes the cores of all of them as ResourceSlices, obeys the spec of their RTNodes and reports in
// their status, at the size of real clusters and without real kernels.
//
// Machine is the agent of one node: what it knows goes in, what it would report comes out, and the time
// is an argument. It has no clock, no client and no goroutine. Overruns, deadline misses, CPU pressure,
// silence, a change of granularity and drift come from scripts in annotations of Pods and Nodes. Fleet
// moves machines along and writes what they report.
package hollow
