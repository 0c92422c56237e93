package rtruntime

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// memory is what the loop remembers of a node: times and what it has told already. Losing it costs a
// longer wait and an Event told twice.
type memory struct {
	node, rtNode types.UID
	pressure     pressure
	// told: the pressure that is, or was, has been told.
	told bool
	// refused are the servers that were told so, with the reason; levels those that the agent last
	// reported, by server.
	refused, levels map[string]string
}

// after is the memory once a decision was carried out and told.
func (m memory) after(n *state.NodeView, d nodeDecision, asked moves) memory {
	next := memory{node: n.UID, pressure: d.Pressure, refused: map[string]string{}, levels: reportedLevels(n)}
	if n.RTNode != nil {
		next.rtNode = n.RTNode.UID
	}
	next.told = d.Pressure.Busy || m.told && raised(d.Spec) > 0
	for id, v := range d.Refused {
		next.refused[id] = v.Reason
	}
	for _, id := range d.NoRoom {
		next.refused[raiseOf(id)] = ""
	}
	for id := range d.Unmoved {
		next.refused[moveOf(asked, id)] = ""
	}
	return next
}

// moveOf is the key of a refused move.
func moveOf(asked moves, id string) string {
	return fmt.Sprintf("move %t %s %s", asked.undoing, asked.action, id)
}

// raiseOf is the key of a refused raise.
func raiseOf(id string) string { return "raise " + id }

// reportedLevels are the levels in force by server ID. What a silent agent said counts no more.
func reportedLevels(n *state.NodeView) map[string]string {
	out := map[string]string{}
	for _, s := range n.Servers {
		if s.Applied != nil && s.Applied.BudgetUs > 0 {
			out[s.ID] = s.Applied.Level
		}
	}
	return out
}

// raised counts the servers that the spec asks to be raised.
func raised(spec v1alpha1.RTNodeSpec) int {
	count := 0
	for _, s := range spec.Servers {
		if s.Level == v1alpha1.LevelHigh {
			count++
		}
	}
	return count
}

// memories holds those of all nodes by name.
type memories struct {
	mu     sync.Mutex
	byName map[string]memory
}

func newMemories() *memories { return &memories{byName: map[string]memory{}} }

// of is the memory of a node; an empty one when it is of an earlier Node of the name.
func (m *memories) of(n *state.NodeView) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byName[n.Name]
	if known.node != n.UID {
		return memory{}
	}
	return known
}

func (m *memories) put(n *state.NodeView, known memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byName[n.Name] = known
}

func (m *memories) drop(name string) (memory, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.byName[name]
	delete(m.byName, name)
	return known, ok
}
