package lean

// Mapping of memory.
type Mapping struct {
	Start, End uintptr
	Code       bool
}

// CleanMappings are those that can be given back.
func CleanMappings(smaps, file string) []Mapping {
	var out []Mapping
	for _, m := range cleanMappings(smaps, file) {
		out = append(out, Mapping{m.start, m.end, m.code})
	}
	return out
}
