package fastpath

import (
	"fmt"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
)

// Leave does for the containers of the table that is kept what an Engine does that can open none of them: what the kernel ends is left in force, what
// only we would end is put back. It is for a process that will not have one. The table stays for the next.
func Leave(stateDir string, backend actuator.Backend) error {
	kept, ok, err := storeIn(stateDir).load()
	if err != nil || !ok {
		return err
	}
	var groups []string
	for _, s := range kept.Servers {
		if s.Cgroup != "" {
			groups = append(groups, s.Cgroup)
		}
	}
	slices.Sort(groups)
	backend.Spare(groups)
	if _, err := backend.Sweep(); err != nil {
		return fmt.Errorf("putting back what nobody would end: %w", err)
	}
	return nil
}
