package migration_test

import (
	"testing"
)

// The ReplicaSet's new pod has another name. If a McKube governs the pod by its name, the new pod would run without its budget, and the
// action would have succeeded. So the action is refused whenever that is so, up to the eviction.
func TestAnActionTakesNoPodItsBudget(t *testing.T) {
	t.Parallel()
	const says = "McKube rt governs the pod by its name, and the one in its place has another; give it a selector"
	for _, s := range []story{
		{name: "from-the-beginning", before: (*town).named},
		{name: "once-the-cores-are-kept", meanwhile: once("reserved", (*town).named)},
		{name: "while-its-eviction-is-refused", meanwhile: func(w *town) func(int, *process) {
			since := 0
			return func(turn int, p *process) {
				switch {
				case since == 0 && w.progressOf("before"):
					w.budget()
					since = turn
				case since > 0 && turn == since+4:
					w.named()
					p.look()
				}
			}
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.phases, s.says, s.running = "RolledBack", says, "rt-1@a"
			if w := s.tell(t, 0, false); len(w.evicted) > 0 {
				t.Errorf("evicted: %v", w.evicted)
			}
		})
	}
}
