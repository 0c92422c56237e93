package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxCPU is the highest number of a CPU that is accepted; the kernel's own bound is 8191.
const MaxCPU = 8191

// ParseCPUList reads the kernel's format of a set of CPUs, such as "0-2,7" or "0-30:2/4" (the first 2 of
// every 4), ascending and each once. An empty text is no CPU.
func ParseCPUList(text string) ([]int, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		r, err := parseCPURange(part)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %w", text, err)
		}
		if cpus = r.appendTo(cpus); len(cpus) > 16*MaxCPU {
			return nil, fmt.Errorf("CPU list %q names CPUs too often", text)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// cpuRange is from first to last, of every stride the first used.
type cpuRange struct{ first, last, used, stride int }

func (r cpuRange) appendTo(cpus []int) []int {
	for cpu := r.first; cpu <= r.last; cpu++ {
		if (cpu-r.first)%r.stride < r.used {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

func parseCPURange(text string) (cpuRange, error) {
	text, groups, grouped := strings.Cut(strings.TrimSpace(text), ":")
	low, high, isRange := strings.Cut(text, "-")
	r := cpuRange{used: 1, stride: 1}
	var err error
	if r.first, err = parseCPU(low); err != nil {
		return r, err
	}
	if r.last = r.first; isRange {
		if r.last, err = parseCPU(high); err != nil {
			return r, err
		}
	}
	if r.last < r.first {
		return r, fmt.Errorf("%q ends before it begins", text)
	}
	if !grouped {
		return r, nil
	}
	used, stride, _ := strings.Cut(groups, "/")
	r.used, err = parseCPU(used)
	if err != nil {
		return r, err
	}
	if r.stride, err = parseCPU(stride); err != nil || r.stride == 0 || r.used == 0 || r.used > r.stride {
		return r, fmt.Errorf("%q is no used/group size", groups)
	}
	return r, nil
}

func parseCPU(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n > MaxCPU {
		return 0, fmt.Errorf("%q is no CPU; want a number of at most %d", text, MaxCPU)
	}
	return int(n), nil
}

// FormatCPUList writes CPUs as the kernel does: "0-2,7". Order and repetition do not matter.
func FormatCPUList(cpus []int) string {
	cpus = slices.Compact(slices.Sorted(slices.Values(cpus)))
	var parts []string
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		if end == i {
			parts = append(parts, strconv.Itoa(cpus[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", cpus[i], cpus[end]))
		}
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// readCPUs is the set of CPUs that a file holds.
func readCPUs(path string) ([]int, error) {
	text, err := readString(path)
	if err != nil {
		return nil, err
	}
	cpus, err := ParseCPUList(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return cpus, nil
}
