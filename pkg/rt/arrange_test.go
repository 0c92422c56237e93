package rt_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func cores(n int) []rt.Core {
	var out []rt.Core
	for id := range n {
		out = append(out, rt.Core{ID: id, Sibling: rt.NoSibling, Capacity: 900_000})
	}
	return out
}

func preferring(s rt.Server, cores ...int) rt.Server {
	s.Preferred = cores
	return s
}

func TestArrange(t *testing.T) {
	middle, low, high := percent("middle", rt.Middle, 40, 40), percent("low", rt.Low, 35, 35), percent("high", rt.High, 25, 25)
	seed := []rt.Server{middle, low, preferring(high, 2)}
	onTwo := rt.Placement{"middle": 2, "low": 2}
	for name, c := range map[string]struct {
		node    rt.Node
		want    rt.Placement
		changes []rt.Change
		refused []string
	}{
		"nothing changes": {
			node: rt.Node{Cores: cores(3), Servers: seed[:2], Current: onTwo, Witness: rt.Placement{"middle": 0, "low": 1}},
			want: onTwo,
		},
		"a preferred core is cleared of the less critical": {
			node:    rt.Node{Cores: cores(3), Servers: seed, Current: onTwo, Witness: rt.Placement{"middle": 2, "low": 2, "high": 0}},
			want:    rt.Placement{"middle": 2, "high": 2, "low": 0},
			changes: []rt.Change{{ID: "high", From: rt.NoCore, To: 2, Reason: "Placed"}, {ID: "low", From: 2, To: 0, Reason: "Displaced"}},
		},
		"not of who is held": {
			node: rt.Node{
				Cores: cores(3), Servers: seed, Current: onTwo, Witness: rt.Placement{"middle": 2, "low": 2, "high": 0}, Held: map[string]bool{"low": true, "middle": true},
			},
			want:    rt.Placement{"middle": 2, "high": 0, "low": 2},
			changes: []rt.Change{{ID: "high", From: rt.NoCore, To: 0, Reason: "Placed"}},
		},
		"not if they have nowhere to go": {
			node: rt.Node{
				Cores: cores(3), Servers: append([]rt.Server{percent("x", rt.High, 60, 60), percent("y", rt.High, 60, 60)}, seed...),
				Current: rt.Placement{"middle": 2, "low": 2, "x": 0, "y": 1}, Witness: rt.Placement{"high": 1},
			},
			want:    rt.Placement{"middle": 2, "low": 2, "x": 0, "y": 1, "high": 1},
			changes: []rt.Change{{ID: "high", From: rt.NoCore, To: 1, Reason: "Placed"}},
		},
		"never of an equal": {
			node:    rt.Node{Cores: cores(3), Servers: []rt.Server{percent("a", rt.High, 80, 80), preferring(high, 2)}, Current: rt.Placement{"a": 2}, Witness: rt.Placement{"high": 1}},
			want:    rt.Placement{"a": 2, "high": 1},
			changes: []rt.Change{{ID: "high", From: rt.NoCore, To: 1, Reason: "Placed"}},
		},
		"one of two preferred cores is booked": {
			node:    rt.Node{Cores: cores(4), Servers: []rt.Server{preferring(percent("a", rt.High, 50, 50), 2, 3), preferring(percent("b", rt.High, 50, 50), 2, 3)}},
			want:    rt.Placement{"a": 2, "b": 3},
			changes: []rt.Change{{ID: "a", From: rt.NoCore, To: 2, Reason: "Placed"}, {ID: "b", From: rt.NoCore, To: 3, Reason: "Placed"}},
		},
		"a core that does not exist": {
			node:    rt.Node{Cores: cores(1), Servers: []rt.Server{preferring(high, 15)}, Current: rt.Placement{"high": 15}, Witness: rt.Placement{"high": 15}},
			want:    rt.Placement{"high": 0},
			changes: []rt.Change{{ID: "high", From: 15, To: 0, Reason: "Lost"}},
		},
		"without preference the core of the claim": {
			node:    rt.Node{Cores: cores(3), Servers: []rt.Server{middle, high}, Current: rt.Placement{"middle": 2}, Witness: rt.Placement{"high": 1}},
			want:    rt.Placement{"middle": 2, "high": 1},
			changes: []rt.Change{{ID: "high", From: rt.NoCore, To: 1, Reason: "Placed"}},
		},
		"by worst fit the one with most room left, whatever the claim is of": {
			node:    rt.Node{Cores: cores(3), Servers: []rt.Server{middle, low, spread(high)}, Current: rt.Placement{"middle": 2, "low": 1}, Witness: rt.Placement{"high": 1}},
			want:    rt.Placement{"middle": 2, "low": 1, "high": 0},
			changes: []rt.Change{{ID: "high", From: rt.NoCore, To: 0, Reason: "Placed"}},
		},
		"strangers go back to the cores of their claims": {
			node: rt.Node{
				Cores:   cores(2),
				Servers: []rt.Server{percent("a", rt.High, 45, 45), percent("b", rt.High, 45, 45), percent("c", rt.High, 70, 70)},
				Current: rt.Placement{"a": 0, "b": 1}, Witness: rt.Placement{"a": 0, "b": 0, "c": 1},
			},
			want:    rt.Placement{"a": 0, "b": 0, "c": 1},
			changes: []rt.Change{{ID: "b", From: 1, To: 0, Reason: "Returned"}, {ID: "c", From: rt.NoCore, To: 1, Reason: "Placed"}},
		},
		"what no core takes is refused": {
			node:    rt.Node{Cores: cores(1), Servers: []rt.Server{percent("a", rt.High, 60, 60), percent("b", rt.High, 60, 60)}, Current: rt.Placement{"b": 0}},
			want:    rt.Placement{"b": 0},
			refused: []string{"a"},
		},
		"on a core that shrank the least critical lose their place": {
			node: rt.Node{
				Cores: []rt.Core{{ID: 2, Sibling: rt.NoSibling, Capacity: 500_000}}, Servers: seed[:2], Current: onTwo, Witness: onTwo,
			},
			want:    rt.Placement{"middle": 2},
			changes: []rt.Change{{ID: "low", From: 2, To: rt.NoCore, Reason: "Refused"}},
			refused: []string{"low"},
		},
		"nonsense is refused": {
			node:    rt.Node{Cores: cores(1), Servers: []rt.Server{{ID: "a"}, high}},
			want:    rt.Placement{"high": 0},
			changes: []rt.Change{{ID: "high", From: rt.NoCore, To: 0, Reason: "Placed"}},
			refused: []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			placed, changes, refused := rt.Arrange(c.node)
			if !maps.Equal(placed, c.want) || !slices.Equal(changes, c.changes) || !slices.Equal(slices.Sorted(maps.Keys(refused)), c.refused) {
				t.Errorf("got  %v %v %v\nwant %v %v %v", placed, changes, refused, c.want, c.changes, c.refused)
			}
		})
	}
}

func spread(s rt.Server) rt.Server {
	s.Fit = rt.WorstFit
	return s
}

// drawNode draws a node whose witness packing passes, with some servers where they are, some elsewhere,
// some nowhere.
func drawNode(t *rapid.T) rt.Node {
	n := rt.Node{Current: rt.Placement{}, Witness: rt.Placement{}}
	for id := range rapid.IntRange(1, 4).Draw(t, "cores") {
		core := drawRTCore(t, id)
		n.Cores = append(n.Cores, core)
		for _, s := range fill(t, core, 5).Servers {
			n.Servers = append(n.Servers, s)
			n.Witness[s.ID] = id
		}
	}
	last := len(n.Cores) - 1
	for i := range n.Servers {
		s := &n.Servers[i]
		s.Preferred = rapid.SliceOfN(rapid.IntRange(0, last+1), 0, 2).Draw(t, "preferred")
		s.Fit = rapid.SampledFrom([]rt.Fit{"", rt.BestFit, rt.WorstFit}).Draw(t, "fit")
		switch rapid.IntRange(0, 3).Draw(t, "where") {
		case 0:
			n.Current[s.ID] = n.Witness[s.ID]
		case 1, 2:
			n.Current[s.ID] = rapid.IntRange(0, last+1).Draw(t, "at")
		}
	}
	return n
}

func loadsOf(n rt.Node, at rt.Placement) []rt.Load {
	var out []rt.Load
	for _, core := range n.Cores {
		load := rt.Load{Core: core}
		for _, s := range n.Servers {
			if id, ok := at[s.ID]; ok && id == core.ID {
				load.Servers = append(load.Servers, s)
			}
		}
		out = append(out, load)
	}
	return out
}

func feasible(loads []rt.Load) (string, bool) {
	for _, l := range loads {
		if v := rt.Holds(l.Core, l.Servers); !v.Admitted {
			return fmt.Sprintf("core %d: %v", l.ID, v), false
		}
	}
	return "", true
}

// When the witness passes, every server has a core, every core passes, and a second look changes nothing.
func TestArrangeIsFeasibleAndStable(t *testing.T) {
	reasons := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		node := drawNode(t)
		placed, changes, refused := rt.Arrange(node)
		if why, ok := feasible(loadsOf(node, placed)); !ok {
			t.Fatalf("%s\nof %+v", why, node)
		}
		if len(refused) > 0 || len(placed) != len(node.Servers) {
			t.Fatalf("refused %v, placed %v\nof %+v", refused, placed, node)
		}
		for _, c := range changes {
			reasons[c.Reason]++
			mustBeAllowed(t, node, changes, c)
		}
		shuffled := node
		shuffled.Servers = slices.Clone(node.Servers)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled.Servers), func(i, j int) {
			shuffled.Servers[i], shuffled.Servers[j] = shuffled.Servers[j], shuffled.Servers[i]
		})
		if again, _, _ := rt.Arrange(shuffled); !maps.Equal(placed, again) {
			t.Fatalf("the order of servers matters: %v, %v", placed, again)
		}
		node.Current = placed
		if again, more, _ := rt.Arrange(node); len(more) > 0 || !maps.Equal(placed, again) {
			t.Fatalf("not stable: %v", more)
		}
	})
	for _, reason := range []string{rt.ChangePlaced, rt.ChangeDisplaced, rt.ChangeReturned, rt.ChangeLost} {
		if reasons[reason] == 0 {
			t.Errorf("nothing was ever %s: %v", reason, reasons)
		}
	}
}

// mustBeAllowed: another server is more critical than the displaced; the returned are where their claims are.
func mustBeAllowed(t *rapid.T, node rt.Node, changes []rt.Change, c rt.Change) {
	switch c.Reason {
	case rt.ChangeReturned:
		if c.To != node.Witness[c.ID] {
			t.Fatalf("%+v is not where its claim is, %d", c, node.Witness[c.ID])
		}
	case rt.ChangeDisplaced:
		i := slices.IndexFunc(node.Servers, func(s rt.Server) bool { return s.ID == c.ID })
		if !slices.ContainsFunc(node.Servers, func(s rt.Server) bool { return s.Criticality > node.Servers[i].Criticality }) {
			t.Fatalf("%+v moved for nobody more critical: %+v\nof %+v", c, changes, node)
		}
	}
}

// One server is added to a node that passes: it displaces as few as Victims says, and none when it fits without.
func TestArrangeMovesTheFewest(t *testing.T) {
	displaced := 0
	rapid.Check(t, func(t *rapid.T) {
		node := rt.Node{Current: rt.Placement{}, Witness: rt.Placement{}}
		for id := range rapid.IntRange(1, 4).Draw(t, "cores") {
			core := drawRTCore(t, id)
			node.Cores = append(node.Cores, core)
			for _, s := range fill(t, core, 6).Servers {
				node.Servers = append(node.Servers, s)
				node.Current[s.ID], node.Witness[s.ID] = id, id
			}
		}
		s := drawServer(t, "newcomer")
		wish := rapid.IntRange(0, len(node.Cores)-1).Draw(t, "preferred")
		s.Preferred = []int{wish}
		loads := loadsOf(node, node.Current)
		node.Servers = append(node.Servers, s)
		placed, changes, refused := rt.Arrange(node)
		if why, ok := feasible(loadsOf(node, placed)); !ok {
			t.Fatal(why)
		}
		moved, at := len(changes), rt.NoCore
		if core, ok := placed[s.ID]; ok {
			moved, at = moved-1, core
		}
		_, _, fits := rt.BestCore(loads, s)
		victims, ok := rt.Victims(loads[wish], s)
		switch {
		case fits && len(refused) > 0:
			t.Fatalf("refused, though it fits: %v", refused)
		case at == wish && ok && moved != len(victims):
			t.Fatalf("%d moved for the preferred core, %d would do: %v", moved, len(victims), changes)
		case fits && at != wish && moved > 0:
			t.Fatalf("%v moved for a core that nobody prefers", changes)
		}
		if mostMoved := fewestMoves(node, s); mostMoved >= 0 && len(refused) == 0 && at != wish && moved > mostMoved {
			t.Fatalf("%d moved, %d would do: %v", moved, mostMoved, changes)
		}
		for _, c := range changes {
			i := slices.IndexFunc(node.Servers, func(o rt.Server) bool { return o.ID == c.ID })
			if c.Reason == rt.ChangeDisplaced && node.Servers[i].Criticality >= s.Criticality {
				t.Fatalf("%+v moved for an equal", c)
			}
		}
		displaced += moved
	})
	if displaced == 0 {
		t.Error("nobody ever moved")
	}
}

// fewestMoves is how few of the less critical must leave any one core for the added server; -1 if none helps.
func fewestMoves(node rt.Node, s rt.Server) int {
	least := -1
	for _, l := range loadsOf(node, node.Current) {
		victims, ok := rt.Victims(l, s)
		if !ok || (least >= 0 && len(victims) >= least) {
			continue
		}
		if canSettle(node, l.ID, victims) {
			least = len(victims)
		}
	}
	return least
}

// canSettle: the other cores take the victims, the largest first.
func canSettle(node rt.Node, from int, victims []rt.Server) bool {
	others := slices.DeleteFunc(loadsOf(node, node.Current), func(l rt.Load) bool { return l.ID == from })
	slices.SortFunc(victims, func(a, b rt.Server) int {
		return cmp.Or(cmp.Compare(b.Charge(0), a.Charge(0)), cmp.Compare(a.ID, b.ID))
	})
	for _, v := range victims {
		core, _, ok := rt.BestCore(others, v)
		if !ok {
			return false
		}
		i := slices.IndexFunc(others, func(l rt.Load) bool { return l.ID == core })
		others[i].Servers = append(slices.Clip(others[i].Servers), v)
	}
	return true
}

// When the witness does not pass, what is placed passes, the rest is refused, and of those on one core none stays for a
// less critical one.
func TestArrangeWithoutWitness(t *testing.T) {
	refusals := 0
	rapid.Check(t, func(t *rapid.T) {
		node := drawNode(t)
		for i := range node.Cores {
			node.Cores[i].Capacity -= rt.PPM(rapid.Int64Range(0, 400_000).Draw(t, "less"))
		}
		placed, changes, refused := rt.Arrange(node)
		if why, ok := feasible(loadsOf(node, placed)); !ok {
			t.Fatalf("%s\nof %+v", why, node)
		}
		for _, s := range node.Servers {
			_, isPlaced := placed[s.ID]
			if _, isRefused := refused[s.ID]; isPlaced == isRefused {
				t.Fatalf("%s is placed: %v, refused: %v", s.ID, isPlaced, isRefused)
			}
		}
		for _, c := range changes {
			if (c.To == rt.NoCore) != (c.Reason == rt.ChangeRefused) {
				t.Fatalf("%+v", c)
			}
		}
		refusals += len(refused)
	})
	if refusals == 0 {
		t.Error("nothing was ever refused")
	}
}
