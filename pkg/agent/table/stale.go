package table

import (
	"fmt"
	"slices"
)

// Stale are the servers that a plan names and that are not on its core, as "core 1: web/app", in order: the plan is older than the containers.
// Nobody is raised or gives way by such an entry.
func (t Table) Stale() []string {
	on := make(map[string]int, len(t.Servers))
	for _, s := range t.Servers {
		on[s.ID] = s.Core
	}
	var out []string
	for _, p := range t.Plans {
		note := func(id string) {
			if core, there := on[id]; !there || core != p.Core {
				out = append(out, fmt.Sprintf("core %d: %s", p.Core, id))
			}
		}
		for _, r := range p.Raise {
			note(r.ID)
		}
		for _, s := range p.Squeeze {
			note(s.ID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
