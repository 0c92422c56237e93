// Package ladder answers real-time pressure with the cheapest step that helps, one at a time. Containers move to other cores
// of the node, a pod moves to another node, less critical pods are evicted, a node is opened or replaced.
//
// One loop over nodes (controller.go) looks at one snapshot. detect.go finds the affected containers, episode.go the stage of
// the answer, decide.go the next step, and plan.go with its escalation levels the action. These are pure. The loop writes its
// decisions to the RTNode's condition RTPressure, the Node's taint and RTActions before anything follows from them, so another
// process can continue. It also remembers times and counts, and losing them costs waiting.
package ladder
