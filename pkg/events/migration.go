package events

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of the Events about pods that go to another node.
const (
	ReasonMigrating      = "Migrating"
	ReasonMigrationWaits = "MigrationWaits"
	ReasonMigrated       = "Migrated"
	ReasonMigrationOver  = "MigrationOver"
	// ReasonMigrationElsewhere: its target had no room when its turn came.
	ReasonMigrationElsewhere = "MigrationElsewhere"
	// ReasonCheckpointing: the pod stands still.
	ReasonCheckpointing = "Checkpointing"
)

// Migrating tells a pod that it is evicted to run on another node, where its cores are kept for it if a McKube governs it. Without a node the scheduler
// chooses.
func Migrating(on runtime.Object, uid, pod, from, to, action string, cores bool) Event {
	where := "where the scheduler puts it"
	if to != "" {
		where = "on node " + to
	}
	if cores {
		where += ", where cores are kept for it"
	}
	return normal(on, ReasonMigrating, fmt.Sprintf("Evicted pod %s from node %s to run %s (action %s)", pod, from, where, action), uid, action)
}

// Checkpointing tells a pod that it stands still, as its state is written and goes to another node.
func Checkpointing(on runtime.Object, uid, to, action string) Event {
	return normal(on, ReasonCheckpointing, fmt.Sprintf("Stopped, as its state is written and goes to node %s (action %s)", to, action), uid, action)
}

// MigrationWaits tells a pod why it may not be evicted yet.
func MigrationWaits(on runtime.Object, uid, why, action string) Event {
	return warning(on, ReasonMigrationWaits, fmt.Sprintf("May not be evicted yet: %s (action %s)", why, action), uid, action)
}

// Migrated tells a pod that it runs in the place of another, which was on another node. The McKube of one that has cores says in its status which.
func Migrated(on runtime.Object, uid, pod, from, to, action string, cores bool) Event {
	with := ""
	if cores {
		with = " with its cores"
	}
	return normal(on, ReasonMigrated, fmt.Sprintf("Pod %s runs on node %s%s, in place of one on node %s (action %s)", pod, to, with, from, action), uid, action)
}

// MigrationElsewhere tells a PodMigration that it goes to another node than was decided, or to the same once more, and why.
func MigrationElsewhere(on runtime.Object, uid, from, to, why string) Event {
	if from == to {
		return normal(on, ReasonMigrationElsewhere, fmt.Sprintf("It goes to node %s once more: %s", to, why), uid, from)
	}
	return normal(on, ReasonMigrationElsewhere, fmt.Sprintf("It goes to node %s and not to node %s: %s", to, from, why), uid, from)
}

// MigrationOver tells a PodMigration what became of it, unless it has succeeded.
func MigrationOver(on runtime.Object, uid, phase, message string) Event {
	made := normal
	if phase != "DryRun" {
		made = warning
	}
	return made(on, ReasonMigrationOver, fmt.Sprintf("%s: %s", phase, message), uid, phase)
}
