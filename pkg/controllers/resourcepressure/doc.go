// Package resourcepressure sees which nodes are short of CPU or memory, and has pods of them migrated.
//
// One loop (controller.go) looks at one set of readings: detect.go says which nodes are under pressure, victims.go which of
// their pods would go in what order, targets.go which nodes have room for them, cooldown.go who has been moved lately. These
// are pure. What is decided is on record before anything follows from it: the pressure as the Node's condition
// ResourcePressure, a move as a PodMigration whose name follows from what was decided. So a process that dies leaves nothing
// to be repeated, and what it forgets are counts of readings: losing them costs waiting.
package resourcepressure
