package resourcepressure

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Mode is what is done about nodes under resource pressure.
type Mode string

// Modes.
const (
	// ModeOff: nobody looks.
	ModeOff Mode = "off"
	// ModeReport: conditions, Events and metrics tell what would be done.
	ModeReport Mode = "report"
	// ModeMigrate: pods are moved.
	ModeMigrate Mode = "migrate"
)

// Modes are all of them.
var Modes = []Mode{ModeOff, ModeReport, ModeMigrate}

// clearing is how many points below its threshold the usage must be for a node to be free of pressure again.
const clearing = 10

// Options are the settings of the loop.
type Options struct {
	Mode Mode
	// Interval between two looks. Readings that are older than three of them are unknown.
	Interval time.Duration
	// ThresholdPercent of CPU or memory above which a node is under pressure.
	ThresholdPercent int
	// Samples in a row that must be above it.
	Samples int
	// PodsPerNode that leave a node within one interval at most.
	PodsPerNode int
	// WorkloadCooldown is how long the pods of a workload rest after one of them was moved.
	WorkloadCooldown time.Duration
	// PairCooldown is for how long no pod goes between two nodes between which one went, in either direction.
	PairCooldown time.Duration
	// SourceTimeout bounds one question to the source.
	SourceTimeout time.Duration
	// Namespaces are those whose pods are moved; nil: all are.
	Namespaces sets.Set[string]
	// Checkpointing is whether any pod may be moved with its state.
	Checkpointing bool
}

// Defaults are those of the SDI Migration Service, where it has them, but that nothing is moved unless it is asked for.
func Defaults() Options {
	return Options{
		Mode: ModeReport, Interval: 30 * time.Second, ThresholdPercent: 85, Samples: 3, PodsPerNode: 3,
		WorkloadCooldown: 10 * time.Minute, PairCooldown: 5 * time.Minute, SourceTimeout: 10 * time.Second, Checkpointing: true,
	}
}

// MaxAge of readings that are believed.
func (o Options) MaxAge() time.Duration { return 3 * o.Interval }
