package host

import (
	"fmt"
	"strconv"
	"strings"
)

// Limit is a resource limit of this process.
type Limit struct {
	Unlimited bool
	Bytes     uint64
}

func (l Limit) String() string {
	if l.Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(l.Bytes, 10) + " bytes"
}

// MemlockLimit is how much memory this process may lock (RLIMIT_MEMLOCK, the soft limit).
func (h Host) MemlockLimit() (Limit, error) {
	text, err := readFile(h.Proc("self", "limits"))
	if err != nil {
		return Limit{}, err
	}
	return ParseLimit(text, "Max locked memory")
}

// ParseLimit finds the soft limit of that name in the format of /proc/<pid>/limits.
func ParseLimit(text, name string) (Limit, error) {
	for line := range strings.SplitSeq(text, "\n") {
		rest, found := strings.CutPrefix(line, name)
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return Limit{}, fmt.Errorf("limit %q has no value", name)
		}
		if fields[0] == "unlimited" {
			return Limit{Unlimited: true}, nil
		}
		bytes, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			return Limit{}, fmt.Errorf("limit %q is %q; want a number or unlimited", name, fields[0])
		}
		return Limit{Bytes: bytes}, nil
	}
	return Limit{}, fmt.Errorf("no limit %q", name)
}
