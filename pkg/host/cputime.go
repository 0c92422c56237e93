package host

import (
	"fmt"
	"strconv"
	"strings"
)

// CPUTime is what a CPU did since it booted, in ticks of user space (1/100 s).
type CPUTime struct {
	CPU                                                    int
	User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Stolen uint64
}

// Busy is the time in which the CPU worked for this machine; stolen time is the hypervisor's.
func (t CPUTime) Busy() uint64 { return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ }

// Rest is the time in which it waited.
func (t CPUTime) Rest() uint64 { return t.Idle + t.IOWait }

// Total is all the time, stolen too.
func (t CPUTime) Total() uint64 { return t.Busy() + t.Rest() + t.Stolen }

// CPUTimes reads /proc/stat: the CPUs that are online, in the kernel's order.
func (h Host) CPUTimes() ([]CPUTime, error) {
	text, err := readFile(h.Proc("stat"))
	if err != nil {
		return nil, fmt.Errorf("reading CPU times: %w", err)
	}
	times, err := ParseCPUTimes(text)
	if err != nil {
		return nil, fmt.Errorf("reading CPU times: %w", err)
	}
	return times, nil
}

// ParseCPUTimes reads the lines of single CPUs in the format of /proc/stat.
func ParseCPUTimes(text string) ([]CPUTime, error) {
	var times []CPUTime
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		cpu, err := parseCPU(fields[0][len("cpu"):])
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		if len(times) > 0 && cpu <= times[len(times)-1].CPU {
			return nil, fmt.Errorf("line %q: CPU %d after CPU %d; want them ascending, each once", line, cpu, times[len(times)-1].CPU)
		}
		t := CPUTime{CPU: cpu}
		if err := t.fill(fields[1:]); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		times = append(times, t)
	}
	return times, nil
}

// fill takes the columns; the oldest kernels have the first four only. Guest time is in user time already.
func (t *CPUTime) fill(columns []string) error {
	into := []*uint64{&t.User, &t.Nice, &t.System, &t.Idle, &t.IOWait, &t.IRQ, &t.SoftIRQ, &t.Stolen}
	if len(columns) < 4 {
		return fmt.Errorf("%d columns; want at least 4", len(columns))
	}
	for i := range min(len(columns), len(into)) {
		n, err := strconv.ParseUint(columns[i], 10, 64)
		if err != nil {
			return fmt.Errorf("column %d: %q is no number", i+1, columns[i])
		}
		*into[i] = n
	}
	return nil
}
