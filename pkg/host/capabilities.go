package host

import (
	"fmt"
	"strconv"
	"strings"
)

// Capability is a bit of a process's capabilities, see capabilities(7).
type Capability uint

// The capabilities that the agent asks about.
const (
	CapIPCLock     Capability = 14
	CapSysAdmin    Capability = 21
	CapSysNice     Capability = 23
	CapSysResource Capability = 24
	CapPerfmon     Capability = 38
	CapBPF         Capability = 39
)

var capabilityNames = map[Capability]string{
	CapIPCLock: "CAP_IPC_LOCK", CapSysAdmin: "CAP_SYS_ADMIN", CapSysNice: "CAP_SYS_NICE",
	CapSysResource: "CAP_SYS_RESOURCE", CapPerfmon: "CAP_PERFMON", CapBPF: "CAP_BPF",
}

func (c Capability) String() string {
	if name, known := capabilityNames[c]; known {
		return name
	}
	return "capability " + strconv.Itoa(int(c))
}

// Capabilities is a set of them.
type Capabilities uint64

// Has says that a capability is in the set.
func (s Capabilities) Has(c Capability) bool { return s&(1<<c) != 0 }

// Capabilities are the effective ones of this process.
func (h Host) Capabilities() (Capabilities, error) {
	text, err := readFile(h.Proc("self", "status"))
	if err != nil {
		return 0, fmt.Errorf("reading capabilities: %w", err)
	}
	set, err := ParseCapabilities(text)
	if err != nil {
		return 0, fmt.Errorf("reading capabilities: %w", err)
	}
	return set, nil
}

// ParseCapabilities reads CapEff of the format of /proc/<pid>/status.
func ParseCapabilities(text string) (Capabilities, error) {
	for line := range strings.SplitSeq(text, "\n") {
		value, found := strings.CutPrefix(line, "CapEff:")
		if !found {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return 0, fmt.Errorf("line %q: no hexadecimal number", line)
		}
		return Capabilities(set), nil
	}
	return 0, fmt.Errorf("no line of CapEff")
}

// Text names those of the set that the agent asks about.
func (s Capabilities) Text() string {
	var names []string
	for _, c := range []Capability{CapBPF, CapPerfmon, CapSysNice, CapIPCLock, CapSysAdmin} {
		if s.Has(c) {
			names = append(names, c.String())
		}
	}
	if len(names) == 0 {
		return "none of the agent's capabilities"
	}
	return strings.Join(names, " ")
}
