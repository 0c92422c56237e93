package catalogue

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// RT is the layout of a machine's cores. Logical CPUs are numbered as Linux numbers them on common
// boards: first one thread of every core, NUMA node by NUMA node, then the second threads in the
// same order.
type RT struct {
	// NUMANodes is the number of NUMA nodes.
	NUMANodes int `json:"numaNodes"`
	// CoresPerNUMA is the number of physical cores on each NUMA node.
	CoresPerNUMA int `json:"coresPerNuma"`
	// SMT says that every core has two threads.
	SMT bool `json:"smt"`
	// Housekeeping are the logical CPUs kept for the system, never offered to real-time work.
	Housekeeping []int `json:"housekeeping"`
	// BandwidthPPM is the share of each core that the kernel lets real-time work have, in parts per
	// million. What is promised of it is less; see Cores.
	BandwidthPPM int `json:"bandwidthPpm"`
	// GranularityUs is how far a task may run past its budget, in microseconds; 0 means
	// DefaultGranularityUs.
	GranularityUs int `json:"granularityUs,omitempty"`
	// EscalationReservePPM is what the cores in EscalationCores keep, in parts per million, for the one
	// container of a core that may be escalated at a time (admission test T1k).
	EscalationReservePPM int `json:"escalationReservePpm,omitempty"`
	// EscalationCores are the logical CPUs that keep the reserve; empty means all that take real-time
	// work.
	EscalationCores []int `json:"escalationCores,omitempty"`
	// Source names the entry of Catalogue.Sources that BandwidthPPM comes from.
	Source string `json:"source"`
}

// Backend is how simulated machines enforce budgets, as in RTNode.status.backend.
const Backend = "simulated"

// DefaultGranularityUs is the enforcement granularity of a machine that gives none, in microseconds.
const DefaultGranularityUs = 100

// CPUs is the number of logical CPUs of the layout.
func (r *RT) CPUs() int {
	if r.SMT {
		return 2 * r.NUMANodes * r.CoresPerNUMA
	}
	return r.NUMANodes * r.CoresPerNUMA
}

// Cores lists the logical CPUs for real-time work, by number. The capacity of each is the smaller of
// what the kernel allows and rt.MaxCapacity, less the escalation reserve.
func (r *RT) Cores() []rt.Core {
	cores := make([]rt.Core, 0, r.CPUs())
	for id := range r.CPUs() {
		if slices.Contains(r.Housekeeping, id) {
			continue
		}
		reserve := r.reserve(id)
		cores = append(cores, rt.Core{
			ID: id, NUMA: r.numaNode(id), Sibling: r.sibling(id), Policy: rt.PolicyOf(Backend),
			Capacity: r.theta() - reserve, EscalationReserve: reserve, Granularity: r.granularity(),
		})
	}
	return cores
}

// Devices are the cores as DRA devices: what the node's agent publishes, and what Karpenter plans with
// before the node is there.
func (r *RT) Devices() []resourcev1.Device { return CoreDevices(r.Cores()) }

// CoreDevices are cores of a simulated machine as DRA devices, in the same order.
func CoreDevices(cores []rt.Core) []resourcev1.Device {
	devices := make([]resourcev1.Device, len(cores))
	for i, core := range cores {
		devices[i] = rtdra.Device(core, Backend)
	}
	return devices
}

// theta is what may be promised of a core, the escalation reserve included.
func (r *RT) theta() rt.PPM { return min(rt.MaxCapacity, rt.PPM(r.BandwidthPPM)) }

func (r *RT) reserve(id int) rt.PPM {
	if len(r.EscalationCores) > 0 && !slices.Contains(r.EscalationCores, id) {
		return 0
	}
	return rt.PPM(r.EscalationReservePPM)
}

func (r *RT) granularity() int64 {
	if r.GranularityUs == 0 {
		return DefaultGranularityUs
	}
	return int64(r.GranularityUs)
}

func (r *RT) numaNode(id int) int {
	return id % (r.NUMANodes * r.CoresPerNUMA) / r.CoresPerNUMA
}

func (r *RT) sibling(id int) int {
	if !r.SMT {
		return rt.NoSibling
	}
	physical := r.NUMANodes * r.CoresPerNUMA
	return (id + physical) % (2 * physical)
}
