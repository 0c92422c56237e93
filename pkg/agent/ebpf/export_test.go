package ebpf

// Tracked is the value of the map of cgroups.
type Tracked = tracked
