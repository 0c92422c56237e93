package actuator

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// parseProgress reads the state from /proc/<pid>/stat, and the time from /proc/<pid>/schedstat.
func parseProgress(stat, times string) (usedNs uint64, state byte, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	spent := strings.Fields(times)
	if len(fields) == 0 || len(spent) == 0 {
		return 0, 0, fmt.Errorf("reading a thread's progress: %q and %q have no fields", stat, times)
	}
	usedNs, err = strconv.ParseUint(spent[0], 10, 64)
	return usedNs, fields[0][0], err
}

// parseStartTime reads field 22 of /proc/<pid>/stat; the name before it, in parentheses, may hold anything.
func parseStartTime(stat string) (uint64, error) {
	const afterName = 19
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= afterName {
		return 0, fmt.Errorf("reading a thread's start time: %d fields after the name; want more than %d", len(fields), afterName)
	}
	return strconv.ParseUint(fields[afterName], 10, 64)
}

// parseMembership reads /proc/<pid>/cgroup: the group in the hierarchy of each controller, host.Unified among
// them.
func parseMembership(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // a group's name may end with a space
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		if fields[1] == "" {
			out[host.Unified] = fields[2]
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			out[controller] = fields[2]
		}
	}
	return out
}

// maxNumber is beyond the kernel's own bound for threads, 2^22, and below what wraps around with another digit.
const maxNumber = (math.MaxInt32 - 9) / 10

// appendNumbers adds the numbers of a piece of a file with one in each line; partial carries one that a
// piece ends within, and is negative within one that no thread has: it is left out, as 0 is, which stands for threads
// of another PID namespace. It stops adding at the capacity of into: the hot path allocates nothing.
func appendNumbers(into []int32, partial int32, piece []byte) ([]int32, int32) {
	for _, c := range piece {
		switch {
		case c < '0' || c > '9':
			if partial > 0 && len(into) < cap(into) {
				into = append(into, partial)
			}
			partial = 0
		case partial < 0 || partial > maxNumber:
			partial = -1
		default:
			partial = partial*10 + int32(c-'0')
		}
	}
	return into, partial
}

// parseProcesses reads the processes of a group. Those that this process cannot name are in the error alone: the kernel writes 0 for one of
// another PID namespace, which a system call would take for ourselves, as it would take what is negative for a whole group of processes.
func parseProcesses(text string) (pids []int, err error) {
	for field := range strings.FieldsSeq(text) {
		pid, fault := strconv.ParseUint(field, 10, 31)
		if fault == nil && pid > 0 {
			pids = append(pids, int(pid))
		} else if err == nil {
			err = fmt.Errorf("process %q; want a number above 0: 0 is a process of another PID namespace", field)
		}
	}
	return pids, err
}
