package catalogue

import "slices"

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
	// BandwidthPPM is the share of each core that real-time work may have, in parts per million.
	BandwidthPPM int `json:"bandwidthPpm"`
	// Source names the entry of Catalogue.Sources that BandwidthPPM comes from.
	Source string `json:"source"`
}

// Core is one logical CPU that real-time work may use.
type Core struct {
	// ID is the number of the logical CPU.
	ID int
	// NUMANode that it is on.
	NUMANode int
	// Sibling is the other thread of the same core, or -1.
	Sibling int
	// BandwidthPPM is the share of it that real-time work may have, in parts per million.
	BandwidthPPM int
}

// CPUs is the number of logical CPUs of the layout.
func (r *RT) CPUs() int {
	if r.SMT {
		return 2 * r.NUMANodes * r.CoresPerNUMA
	}
	return r.NUMANodes * r.CoresPerNUMA
}

// Cores lists the logical CPUs for real-time work, by number.
func (r *RT) Cores() []Core {
	cores := make([]Core, 0, r.CPUs())
	for id := range r.CPUs() {
		if slices.Contains(r.Housekeeping, id) {
			continue
		}
		cores = append(cores, Core{ID: id, NUMANode: r.numaNode(id), Sibling: r.sibling(id), BandwidthPPM: r.BandwidthPPM})
	}
	return cores
}

func (r *RT) numaNode(id int) int {
	return id % (r.NUMANodes * r.CoresPerNUMA) / r.CoresPerNUMA
}

func (r *RT) sibling(id int) int {
	if !r.SMT {
		return -1
	}
	physical := r.NUMANodes * r.CoresPerNUMA
	return (id + physical) % (2 * physical)
}
