package agent

import (
	"errors"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// unheardFor is how long an agent that starts waits for the Pods of containers whose budgets are in force. An API server that lags shows them
// within seconds; who has really ended, the fast path reports within one.
const unheardFor = time.Minute

var errUnheard = errors.New("the fast path has budgets of containers in force that the API server does not show as running")

// unheard are the servers that a spec still names and that have a budget in force by the fast path's report, governed or not, whose containers do not
// run by the Pods that were heard. A table without their groups would take from them what the fast path could not give back.
func unheard(spec *v1alpha1.RTNode, report table.Report, found map[discover.Key]discover.Found) []string {
	if spec == nil {
		return nil
	}
	inForce := map[string]bool{}
	for _, s := range report.Servers {
		inForce[s.ID] = s.BudgetUs > 0 || s.HeldUs > 0
	}
	var out []string
	for _, s := range spec.Spec.Servers {
		key := discover.Key{Pod: s.PodUID, Container: s.Container}
		if inForce[idOf(s)] && found[key].Cgroup == "" {
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
