package ladder_test

import (
	"testing"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// twin is a node with an affected High container beside one container of a pod, whose other container is alone on its core.
func twin(criticality mcv1.Criticality, app, aux int64) *cluster {
	w := newCluster()
	w.node("a", 2)
	w.run("high", "a", "High", 20, 40, 0)
	w.pods["high"].OwnerReferences = nil // it stays
	w.run("twin", "a", criticality, app, app, 0)
	w.aux("twin", criticality, aux, 1)
	return w
}

// The relieved core counts: a container that is alone on its core, and would be so on the other node, does not keep its pod.
func TestAPodOfTwoContainersGoesWhereTheyFit(t *testing.T) {
	t.Parallel()
	for _, criticality := range []mcv1.Criticality{"Low", "High"} {
		for _, aux := range []int64{65, 70, 85} { // the core that is relieved is at 70 %
			w := twin(criticality, 30, aux)
			if got := chosen(t, w.planner("a", ladder.SourceOverruns, "high")); criticality == "High" && got != "OpenNode: opening a node for default/twin" {
				t.Errorf("%s, its other container at %d %%, no other node: %s", criticality, aux, got)
			}
			w.node("b", 2)
			if got := chosen(t, w.planner("a", ladder.SourceOverruns, "high")); got != "Migrate: moving default/twin to node b" {
				t.Errorf("%s, its other container at %d %%: %s", criticality, aux, got)
			}
		}
	}
}

// If both containers would come to one core, the planner judges it with both, and looks at the next node. An opened node may be
// such a node.
func TestBothContainersCountWhereTheyGo(t *testing.T) {
	t.Parallel()
	w := twin("High", 25, 45) // the core that is relieved is at 65 %
	w.node("b", 1)            // would be at 70 %
	p := w.planner("a", ladder.SourceOverruns, "high")
	p.Pool = ""
	if got := chosen(t, p); got != "OpenNode: opening a node for default/twin" {
		t.Errorf("with a node of one core: %s", got)
	}
	w.node("c", 2)
	if got := chosen(t, w.planner("a", ladder.SourceOverruns, "high")); got != "Migrate: moving default/twin to node c" {
		t.Errorf("with a node of one core and one of two: %s", got)
	}
}

// No node is opened for a pod that would be as crowded on an empty one: no pod would go there.
func TestNoNodeIsOpenedThatWouldBeAsCrowded(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 1)
	w.run("twin", "a", "High", 30, 40, 0)
	w.aux("twin", "High", 45, 0)
	p := w.planner("a", ladder.SourceOverruns, "twin")
	p.Pool = ""
	if got := chosen(t, p); got != "nothing" {
		t.Errorf("alone with itself, on any node: %s", got)
	}
	w.node("b", 1)
	p = w.planner("a", ladder.SourceOverruns, "twin")
	p.Pool = ""
	if got := chosen(t, p); got != "nothing" {
		t.Errorf("alone with itself, there as here: %s", got)
	}
	w.node("c", 2)
	p = w.planner("a", ladder.SourceOverruns, "twin")
	p.Pool = ""
	if got := chosen(t, p); got != "Migrate: moving default/twin itself to node c" {
		t.Errorf("where each has a core: %s", got)
	}
}

// The same holds for a neighbour of three containers, two of which would come to one core of it.
func TestNoNodeIsOpenedForANeighbourThatWouldBeAsCrowded(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]string{40: "nothing", 20: "OpenNode: opening a node for default/trio"} {
		w := newCluster()
		w.node("a", 2)
		w.run("high", "a", "High", 20, 25, 0)
		w.pods["high"].OwnerReferences = nil
		w.run("trio", "a", "High", 20, 20, 0)
		w.aux("trio", "High", ms, 1)
		w.aux("trio", "High", ms, 1)
		w.run("fill", "a", "High", 85-2*ms, 85-2*ms, 1)
		w.pods["fill"].OwnerReferences = nil
		p := w.planner("a", ladder.SourceOverruns, "high")
		p.Pool = ""
		if got := chosen(t, p); got != want {
			t.Errorf("its others at %d %%, 45 %% here: %s, want %s", ms, got, want)
		}
	}
}

// Another container of the affected container's own pod is a neighbour like any other.
func TestTheOtherContainerOfItsPodMakesRoom(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 2)
	w.run("twin", "a", "High", 20, 40, 0)
	w.run("other", "a", "High", 35, 35, 1)
	for _, name := range []string{"twin", "other"} {
		w.mckubes[name].Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
	}
	w.aux("twin", "Low", 30, 0)
	if got := chosen(t, w.planner("a", ladder.SourceOverruns, "twin")); got != "Rearrange: moving container aux of pod default/twin to core 1" {
		t.Error(got)
	}
}
