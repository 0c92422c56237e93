package rtruntime_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func TestMovesOfAnAction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		moves     rt.Placement
		want      string
		unmoved   string // server and reason
		rearrange int    // how many changes are told as the action's
	}{
		"one goes":                {rt.Placement{"b/app": 2}, "a@0 low 60/60, b@2 low 25/25, c@1 low 40/40", "", 1},
		"two change places":       {rt.Placement{"a/app": 1, "c/app": 0}, "a@1 low 60/60, b@0 low 25/25, c@0 low 40/40", "", 2},
		"one alone does not fit":  {rt.Placement{"a/app": 1}, "a@0 low 60/60, b@0 low 25/25, c@1 low 40/40", "a/app CoreFull", 0},
		"then none goes":          {rt.Placement{"a/app": 1, "b/app": 2}, "a@0 low 60/60, b@0 low 25/25, c@1 low 40/40", "a/app CoreFull", 0},
		"no such core":            {rt.Placement{"b/app": 7}, "a@0 low 60/60, b@0 low 25/25, c@1 low 40/40", "b/app NoCore", 0},
		"one that is gone":        {rt.Placement{"x/app": 1, "b/app": 2}, "a@0 low 60/60, b@2 low 25/25, c@1 low 40/40", "", 1},
		"where it is":             {rt.Placement{"a/app": 0}, "a@0 low 60/60, b@0 low 25/25, c@1 low 40/40", "", 0},
		"nothing":                 {nil, "a@0 low 60/60, b@0 low 25/25, c@1 low 40/40", "", 0},
		"all to a core of theirs": {rt.Placement{"a/app": 2, "b/app": 1, "c/app": 0}, "a@2 low 60/60, b@1 low 25/25, c@0 low 40/40", "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(3)
			m.add("a", "High", 60, 60, 0)
			m.add("b", "Low", 25, 25, 0)
			m.add("c", "Middle", 40, 40, 1)
			m.settle(t, rtruntime.Pressure{}, start)
			n := m.view(t)
			d := rtruntime.DecideMoves(n, granularity, c.moves)
			expectSpec(t, d, c.want)
			var unmoved []string
			for _, id := range slices.Sorted(maps.Keys(d.Unmoved)) {
				unmoved = append(unmoved, id+" "+d.Unmoved[id].Reason)
			}
			if got := strings.Join(unmoved, ", "); got != c.unmoved {
				t.Errorf("unmoved: %q, want %q", got, c.unmoved)
			}
			told := 0
			for _, e := range rtruntime.PlacementEvents(n, d) {
				if e.Reason == "Moved" && strings.Contains(e.Message, "action a asks for it") {
					told++
				}
			}
			if told != 2*c.rearrange || len(d.Changes) != c.rearrange {
				t.Errorf("%d Events on pods and McKubes tell of the action, changes %v", told, d.Changes)
			}
			m.rtNode.Spec = d.Spec
			if again := m.settle(t, rtruntime.Pressure{}, start); len(again.Changes) != 0 || spec(again.Spec) != c.want {
				t.Errorf("they do not stay: %v", again.Changes)
			}
		})
	}
}

// Whatever is asked: every core passes its test, who ran before runs on, and moves are made all or none.
func TestMovesNeverBreakACore(outer *testing.T) {
	outer.Parallel()
	made, refused := 0, 0
	rapid.Check(outer, func(t *rapid.T) {
		m := &drawnMachine{machine: newMachine(rapid.IntRange(1, 4).Draw(t, "cores")), TB: outer}
		for range rapid.IntRange(1, 8).Draw(t, "containers") {
			m.come(t)
		}
		m.settle(m, rtruntime.Pressure{}, start)
		before := m.view(m)
		to := rt.Placement{}
		for range rapid.IntRange(1, 4).Draw(t, "moves") {
			if name := m.one(t); name != "" {
				to[name+"/app"] = rapid.IntRange(0, len(m.cores)).Draw(t, "to")
			}
		}
		d := rtruntime.DecideMoves(before, granularity, to)
		on := map[int][]rt.Server{}
		for _, e := range d.Spec.Servers {
			on[int(e.Cores[0])] = append(on[int(e.Cores[0])], rtruntime.ServerOf(e))
			s, _ := before.Server(string(e.PodUID) + "/app")
			core, asked := to[s.ID]
			switch {
			case len(d.Unmoved) > 0 && s.Physical != rt.NoCore && int(e.Cores[0]) != s.Physical:
				t.Fatalf("%s went to core %d, though the action cannot be done: %v", e.Pod, e.Cores[0], d.Unmoved)
			case len(d.Unmoved) == 0 && asked && int(e.Cores[0]) != core && len(d.Refused) == 0:
				t.Fatalf("%s is on core %d, want %d", e.Pod, e.Cores[0], core)
			}
		}
		for core, servers := range on {
			c, _ := before.Core(core)
			if v := rt.Holds(c.Core, servers); !v.Admitted {
				t.Fatalf("core %d: %s", core, v)
			}
		}
		if len(d.Spec.Servers) < len(m.rtNode.Spec.Servers) {
			t.Fatalf("%d servers are left of %d", len(d.Spec.Servers), len(m.rtNode.Spec.Servers))
		}
		made, refused = made+len(d.Changes), refused+len(d.Unmoved)
	})
	if made == 0 || refused == 0 {
		outer.Errorf("%d moves made, %d refused: one of the two was never tried", made, refused)
	}
}

// The loop does not move a container that an action has for a new container meanwhile, and looks at it again.
func TestContainersOfAnActionAreNotMoved(t *testing.T) {
	t.Parallel()
	m := newMachine(4)
	m.add("middle", "Middle", 40, 40, 2)
	m.add("low", "Low", 35, 35, 2)
	m.settle(t, rtruntime.Pressure{}, start)
	m.add("high", "High", 25, 25, 1)
	m.prefer("high", "2")
	n := m.view(t)
	d := rtruntime.DecideHeld(n, granularity, "middle", "low")
	expectSpec(t, d, "high@1 low 25/25, low@2 low 35/35, middle@2 low 40/40")
	if d.Wake != rtruntime.Another {
		t.Errorf("the node is looked at again after %s", d.Wake)
	}
	if free := rtruntime.DecideHeld(n, granularity); len(free.Changes) != 2 || free.Wake != 0 {
		t.Errorf("nobody is held: changes %v, looked at again after %s", free.Changes, free.Wake)
	}
}
