package host

import (
	"fmt"
	"io/fs"
	"os"
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

// CapabilitiesOf are the effective ones of the process with the least number whose name, as in /proc/<pid>/comm, is given. The error is
// fs.ErrNotExist when there is none.
func (h Host) CapabilitiesOf(name string) (pid int, set Capabilities, err error) {
	entries, err := os.ReadDir(h.Proc())
	if err != nil {
		return 0, 0, fmt.Errorf("looking for %s: %w", name, err)
	}
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if err != nil || pid != 0 && number > pid {
			continue
		}
		if comm, err := readFile(h.Proc(e.Name(), "comm")); err == nil && strings.TrimSpace(comm) == name {
			pid = number
		}
	}
	if pid == 0 {
		return 0, 0, fmt.Errorf("looking for %s in %s: %w", name, h.Proc(), fs.ErrNotExist)
	}
	text, err := readFile(h.Proc(strconv.Itoa(pid), "status"))
	if err != nil {
		return pid, 0, fmt.Errorf("reading capabilities of %s: %w", name, err)
	}
	if set, err = ParseCapabilities(text); err != nil {
		return pid, 0, fmt.Errorf("reading capabilities of %s: %w", name, err)
	}
	return pid, set, nil
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
