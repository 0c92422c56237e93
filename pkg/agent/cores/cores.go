// Package cores chooses which cores of a node take real-time work. Pure.
package cores

import (
	"fmt"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Choice is the outcome.
type Choice struct {
	// Cores that take real-time work, ascending; may be empty on a machine with one core.
	Cores []int
	// Out are the others of the machine, with the reason.
	Out map[int]string
}

// Choose takes the lists of the flags --cores and --reserved-cores, in the kernel's format ("1-3,6"); either may
// be empty.
//
// Without --cores these are all online cores but the reserved ones, those that the kernel was told to
// isolate (isolcpus=: they are somebody's who asked for them) and, where nothing is reserved, the lowest,
// where most of the kernel's own work is. With --cores these are exactly the named ones, isolated or not.
//
// The host keeps at least one online core: the error names the flag that takes the last. It also names
// cores of --cores that the machine has not, or that are reserved; one that is offline is left out.
func Choose(machine host.Topology, wanted, reserved string) (Choice, error) {
	keep, err := parse("--reserved-cores", reserved)
	if err != nil {
		return Choice{}, err
	}
	want, err := parse("--cores", wanted)
	if err != nil {
		return Choice{}, err
	}
	if err := known(machine, want, keep); err != nil {
		return Choice{}, err
	}
	if len(want) == 0 && len(keep) == 0 {
		keep = lowest(machine)
	}
	choice := Choice{Out: map[int]string{}}
	for _, c := range machine.Cores {
		if why := out(c, want, keep); why != "" {
			choice.Out[c.ID] = why
			continue
		}
		choice.Cores = append(choice.Cores, c.ID)
	}
	slices.Sort(choice.Cores)
	if online := machine.Online(); len(choice.Cores) > 0 && len(choice.Cores) == len(online) {
		return Choice{}, fmt.Errorf("--cores %q and --reserved-cores %q leave no core to the host: want at least one of %s out of the one or in the other", wanted, reserved, host.FormatCPUList(online))
	}
	return choice, nil
}

func parse(flag, list string) ([]int, error) {
	cores, err := host.ParseCPUList(list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return cores, nil
}

// known says what of --cores cannot be had.
func known(machine host.Topology, want, keep []int) error {
	for _, id := range want {
		if !slices.ContainsFunc(machine.Cores, func(c host.Core) bool { return c.ID == id }) {
			return fmt.Errorf("--cores names core %d, which the machine has not: it has %s", id, host.FormatCPUList(all(machine)))
		}
		if slices.Contains(keep, id) {
			return fmt.Errorf("core %d is in --cores and in --reserved-cores; want it in one of them", id)
		}
	}
	return nil
}

func all(machine host.Topology) []int {
	out := make([]int, len(machine.Cores))
	for i, c := range machine.Cores {
		out[i] = c.ID
	}
	return out
}

// lowest is the lowest online core.
func lowest(machine host.Topology) []int {
	online := machine.Online()
	if len(online) == 0 {
		return nil
	}
	return []int{slices.Min(online)}
}

// out is why a core takes no real-time work; empty when it does.
func out(c host.Core, want, keep []int) string {
	switch named := slices.Contains(want, c.ID); {
	case !c.Online:
		return "it is offline"
	case slices.Contains(keep, c.ID):
		return "it is kept for the host"
	case len(want) > 0 && !named:
		return "it is not in --cores"
	case c.Isolated && !named:
		return "the kernel isolates it for somebody (isolcpus=); name it in --cores to use it"
	}
	return ""
}
