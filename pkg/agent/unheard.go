package agent

import (
	"errors"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// unheardFor is how long an agent that starts waits for the Pods of containers that the fast path governs. An API server that lags shows them
// within seconds; who has really ended, the fast path reports within one.
const unheardFor = time.Minute

var errUnheard = errors.New("the fast path governs containers that the API server does not show as running")

// unheard are the servers that a spec still names and the fast path governs, by its report, whose containers do not run by the Pods that were heard. A
// table without their groups would take from them what the fast path could not give back.
func unheard(spec *v1alpha1.RTNode, report table.Report, found map[discover.Key]discover.Found) []string {
	if spec == nil {
		return nil
	}
	governed := map[string]bool{}
	for _, s := range report.Servers {
		governed[s.ID] = s.BudgetUs > 0
	}
	var out []string
	for _, s := range spec.Spec.Servers {
		key := discover.Key{Pod: s.PodUID, Container: s.Container}
		if governed[idOf(s)] && found[key].Cgroup == "" {
			out = append(out, idOf(s))
		}
	}
	return out
}

// waits says that an agent which has told nothing yet is to wait for Pods, and takes down since when.
func (m *memory) waits(unheard []string, at time.Time) bool {
	if len(unheard) == 0 {
		return false
	}
	if m.unheard.IsZero() {
		m.unheard = at
	}
	return at.Sub(m.unheard) < unheardFor
}
