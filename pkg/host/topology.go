package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
)

// NoSibling is the Sibling of a core that shares its hardware with none.
const NoSibling = -1

// Unknown is the Package or NUMA node of a core whose own is not known, as of one that is offline.
const Unknown = -1

// Topology is the machine's CPUs.
type Topology struct {
	// Cores that are present, online or not, by ID.
	Cores []Core
}

// Core is what the kernel calls a CPU: one hardware thread.
type Core struct {
	ID int
	// NUMA node and Package (socket); Unknown when not known.
	NUMA, Package int
	// Sibling is the lowest other CPU that runs on the same hardware core (SMT); NoSibling without one.
	Sibling int
	// Online CPUs run tasks. Isolated ones were taken out of load balancing at boot (isolcpus=).
	Online, Isolated bool
}

// Online are the CPUs that run tasks.
func (t Topology) Online() []int { return t.ids(func(c Core) bool { return c.Online }) }

// Isolated are the CPUs that were isolated at boot and are online.
func (t Topology) Isolated() []int {
	return t.ids(func(c Core) bool { return c.Online && c.Isolated })
}

func (t Topology) ids(want func(Core) bool) []int {
	var ids []int
	for _, c := range t.Cores {
		if want(c) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Topology reads the CPUs below /sys/devices/system.
func (h Host) Topology() (Topology, error) {
	present, err := readCPUs(h.cpu("present"))
	if err != nil {
		return Topology{}, fmt.Errorf("reading topology: %w", err)
	}
	online, err := readCPUs(h.cpu("online"))
	if err != nil {
		return Topology{}, fmt.Errorf("reading topology: %w", err)
	}
	isolated, err := h.Isolated()
	if err != nil {
		return Topology{}, fmt.Errorf("reading topology: %w", err)
	}
	nodes, err := h.numaNodes()
	if err != nil {
		return Topology{}, fmt.Errorf("reading topology: %w", err)
	}
	var t Topology
	for _, id := range present {
		core := Core{ID: id, NUMA: Unknown, Package: Unknown, Sibling: NoSibling,
			Online: slices.Contains(online, id), Isolated: slices.Contains(isolated, id)}
		if node, known := nodes[id]; known {
			core.NUMA = node
		}
		if core.Online {
			if err := h.placeCore(&core); err != nil {
				return Topology{}, fmt.Errorf("reading topology: %w", err)
			}
		}
		t.Cores = append(t.Cores, core)
	}
	return t, nil
}

// placeCore fills in package and sibling, which the kernel tells only of CPUs that are online.
func (h Host) placeCore(c *Core) error {
	dir := fmt.Sprintf("cpu%d", c.ID)
	if pkg, err := readInt(h.cpu(dir, "topology", "physical_package_id")); err == nil {
		c.Package = int(pkg)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	threads, err := readCPUs(h.cpu(dir, "topology", "thread_siblings_list"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, id := range threads {
		if id != c.ID {
			c.Sibling = id
			return nil
		}
	}
	return nil
}

// Isolated are the CPUs of isolcpus= that are outside of load balancing. Kernels without that file have none.
func (h Host) Isolated() ([]int, error) {
	return absentIsNone(readCPUs(h.cpu("isolated")))
}

// NoHzFull are the CPUs whose tick stops while they run one task (nohz_full=).
func (h Host) NoHzFull() ([]int, error) {
	text, err := readString(h.cpu("nohz_full"))
	if err == nil && text == "(null)" { // what the kernel prints without a mask
		return nil, nil
	}
	if err != nil {
		return absentIsNone(nil, err)
	}
	return ParseCPUList(text)
}

// numaNodes are the nodes of CPUs: node of each. A kernel without NUMA has no directory and puts all on 0.
func (h Host) numaNodes() (map[int]int, error) {
	lists, err := filepath.Glob(h.Sys("devices", "system", "node", "node[0-9]*", "cpulist"))
	if err != nil {
		return nil, err
	}
	nodes := map[int]int{}
	for _, list := range lists {
		node, err := strconv.Atoi(filepath.Base(filepath.Dir(list))[len("node"):])
		if err != nil {
			continue // not a node's directory
		}
		cpus, err := readCPUs(list)
		if err != nil {
			return nil, err
		}
		for _, cpu := range cpus {
			nodes[cpu] = node
		}
	}
	if len(lists) > 0 {
		return nodes, nil
	}
	present, err := readCPUs(h.cpu("present"))
	for _, cpu := range present {
		nodes[cpu] = 0
	}
	return nodes, err
}

func (h Host) cpu(elem ...string) string {
	return h.Sys(append([]string{"devices", "system", "cpu"}, elem...)...)
}

func absentIsNone(cpus []int, err error) ([]int, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return cpus, err
}
