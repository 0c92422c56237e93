// Package trace reads recorded workloads: which pods were asked for, when, for how long, and on which machines.
//
// The default columns are those of the openb trace (Weng et al., "Beware of Fragmentation", USENIX ATC 2023);
// a Mapping reads any other CSV file with a header. Reading is strict: a value that cannot be understood is an
// error that names file, line, column, the value, and what would be right.
package trace

import "time"

// Pod is one recorded pod. Times are offsets from the start of the trace.
type Pod struct {
	Line      int    // line in the file, the header being line 1
	Name      string // as recorded; unique in the file
	CPUMilli  int64  // requested thousandths of a core
	MemoryMiB int64  // requested MiB
	GPUs      int64  // requested GPUs, 0 for none
	// GPUMilli is the share of the one GPU in thousandths when GPUs is 1 (1000 = all of it). Pods with several GPUs
	// always get whole ones.
	GPUMilli  int64
	GPUModels []string // models that will do; empty = any
	QoS       string   // as recorded, "" when the file has none
	Phase     string   // as recorded at the snapshot, "" when the file has none
	Created   time.Duration
	Deleted   time.Duration
	Scheduled time.Duration // meaningful only when WasScheduled
	// WasScheduled says that the recorded cluster placed the pod.
	WasScheduled bool
}

// Wait is the recorded time from creation to placement. It is meaningful only when WasScheduled.
func (p Pod) Wait() time.Duration { return p.Scheduled - p.Created }

// Work is how long the pod ran in the trace: from placement to deletion, or, when it was never placed, from creation to
// deletion.
func (p Pod) Work() time.Duration {
	if p.WasScheduled {
		return p.Deleted - p.Scheduled
	}
	return p.Deleted - p.Created
}

// FractionalGPU says that the pod wants less than one whole GPU.
func (p Pod) FractionalGPU() bool { return p.GPUs == 1 && p.GPUMilli < 1000 }

// Machine is one recorded machine.
type Machine struct {
	Line      int
	Name      string
	CPUMilli  int64
	MemoryMiB int64
	GPUs      int64
	GPUModel  string // "" when it has no GPU
}
