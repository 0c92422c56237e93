// Package ladder answers real-time pressure with the cheapest step that helps, one at a time: containers of the node are
// rearranged, a pod is moved to another node, less critical pods are evicted, a node is opened or replaced.
//
// One loop over nodes (controller.go) looks at one snapshot: detect.go says who suffers, episode.go how far the answer
// has come, decide.go what comes next, plan.go and its rungs which action. These are pure. What the loop decides is
// on the RTNode's condition RTPressure, on the Node's taint and on RTActions before anything follows from it, so
// another process goes on from there; what it remembers beside are times and counts, and losing them costs waiting.
package ladder
