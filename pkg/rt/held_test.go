package rt_test

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Who is held keeps the core that it has, as long as that passes with it; and what is promised holds as ever.
func TestWhoIsHeldStays(t *testing.T) {
	stayed := 0
	rapid.Check(t, func(t *rapid.T) {
		node := rt.Node{Current: rt.Placement{}, Witness: rt.Placement{}, Held: map[string]bool{}}
		for id := range rapid.IntRange(1, 3).Draw(t, "cores") {
			load := fill(t, drawRTCore(t, id), 4)
			node.Cores = append(node.Cores, load.Core)
			for _, s := range load.Servers {
				node.Servers = append(node.Servers, s)
				node.Current[s.ID], node.Held[s.ID] = id, rapid.Bool().Draw(t, "held")
				node.Witness[s.ID] = rapid.IntRange(0, id).Draw(t, "witness")
			}
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "newcomers") {
			s := drawServer(t, fmt.Sprintf("new-%d", i))
			s.Preferred = rapid.SliceOfN(rapid.IntRange(0, 2), 0, 2).Draw(t, "preferred")
			node.Servers = append(node.Servers, s)
			node.Witness[s.ID] = 0
		}
		placed, changes, _ := rt.Arrange(node)
		for _, c := range changes {
			if node.Held[c.ID] && c.From != rt.NoCore {
				t.Fatalf("%s is held, and goes from core %d to %d: %s", c.ID, c.From, c.To, c.Reason)
			}
		}
		for _, core := range node.Cores {
			var on []rt.Server
			for _, s := range node.Servers {
				if at, ok := placed[s.ID]; ok && at == core.ID {
					on = append(on, s)
				}
			}
			if !rt.Holds(core, on).Admitted {
				t.Fatalf("core %d does not hold what is placed there", core.ID)
			}
		}
		free := node
		free.Held = nil
		if other, _, _ := rt.Arrange(free); !maps.Equal(other, placed) {
			stayed++
		}
	})
	if stayed == 0 {
		t.Error("that somebody is held never mattered")
	}
}
