package disruption_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// The process ends after each thing that any component does, and the next one goes on from what the API server has: the node is
// replaced once, by one other.
func TestTheNextLeaderGoesOn(t *testing.T) {
	for kill := range 12 {
		t.Run(fmt.Sprintf("killed after %d", kill), func(t *testing.T) {
			w := begin(t, statetest.Cores(2)...)
			w.node("old", "edge", statetest.Cores(2)...)
			pod := w.pod("control", "old", 50)
			w.submit("replace-1", "old")
			done := 0
			act := func(f func()) {
				f()
				if done == kill {
					w.restart()
					w.reveal(pod)
				}
				done++
			}
			joined := map[string]bool{}
			for range 10 {
				act(func() { w.step("replace-1") })
				if rules.Phase(w.actions["replace-1"].Status.Phase).Over() {
					break
				}
				act(w.pass)
				act(func() {
					for _, name := range w.opened() {
						if !joined[name] {
							joined[name] = true
							w.join(name, statetest.Cores(2)...)
						}
					}
				})
				if len(w.disrupted()) > 0 {
					act(func() { w.carry("old") })
				}
				w.leaveIfDeleting(pod)
			}
			if got := w.actions["replace-1"].Status.Phase; got != "Succeeded" {
				t.Errorf("the action is %s", got)
			}
			if len(joined) != 1 {
				t.Errorf("%d nodes were opened, want one", len(joined))
			}
		})
	}
}

// The process ends after each thing that is done to take a replacement back: nothing is left of it.
func TestTheNextLeaderTakesBack(t *testing.T) {
	for kill := range 4 {
		t.Run(fmt.Sprintf("killed after %d", kill), func(t *testing.T) {
			w, _ := underWay(t)
			w.withdraw("replace-1")
			for done := range 6 {
				if done%2 == 0 {
					w.step("replace-1")
				} else {
					w.pass()
				}
				if done == kill {
					w.restart()
					w.reveal()
				}
				if rules.Phase(w.actions["replace-1"].Status.Phase).Over() {
					break
				}
			}
			if got := w.actions["replace-1"].Status.Phase; got != "RolledBack" {
				t.Errorf("the action is %s", got)
			}
			w.pass()
			w.expectUntouched("old")
			if left := w.opened(); len(left) != 0 {
				t.Errorf("%v are left of it", left)
			}
		})
	}
}

// The process dies before each of its writes, Karpenter's among them, while a node is replaced, and while that is undone.
func TestTheNextLeaderGoesOnFromEachWrite(t *testing.T) {
	for _, undone := range []bool{false, true} {
		play := func(t *testing.T, dieAt int) (writes int) {
			w := begin(t, statetest.Cores(2)...)
			w.node("old", "edge", statetest.Cores(2)...)
			pod := w.pod("control", "old", 50)
			w.submit("replace-1", "old")
			w.life = &mortal.Life{DieAt: dieAt}
			w.restart()
			w.reveal(pod)
			joined := w.replace("replace-1", pod, undone)
			if undone {
				w.expectTakenBack("replace-1")
			} else if got := w.actions["replace-1"].Status; got.Phase != "Succeeded" || joined != 1 {
				t.Errorf("the action is %s (%s), and %d nodes were opened", got.Phase, got.Message, joined)
			}
			return w.life.Writes
		}
		t.Run(fmt.Sprintf("undone=%t", undone), func(t *testing.T) {
			writes := 0
			t.Run("undisturbed", func(t *testing.T) { writes = play(t, 0) })
			for _, dieAt := range sampling.Points(t, 1, writes, deathsPerReplacement) {
				t.Run(fmt.Sprintf("write %d", dieAt), func(t *testing.T) { play(t, dieAt) })
			}
		})
	}
}

// deathsPerReplacement is before how many of its writes, chosen at random, the process dies in a run of `make test` while a node is
// replaced, and while that is undone. Each has some ten to twenty writes, and takes a second.
const deathsPerReplacement = 3

// replace goes on with an action until it is over, in as many processes as that takes, and returns how many nodes were opened.
func (w *world) replace(action string, pod *corev1.Pod, undone bool) (nodes int) {
	w.Helper()
	joined := map[string]bool{}
	alive := func() {
		if w.died() {
			w.restart()
			w.reveal(pod)
		}
	}
	for round := range 20 {
		w.step(action)
		alive()
		if rules.Phase(w.actions[action].Status.Phase).Over() {
			break
		}
		w.pass()
		alive()
		if undone {
			if round > 0 && w.actions[action].Status.Phase == "Running" {
				w.withdraw(action)
			}
			continue
		}
		for _, name := range w.opened() {
			if !joined[name] {
				joined[name] = true
				w.join(name, statetest.Cores(2)...)
			}
		}
		if len(w.disrupted()) > 0 {
			w.carry("old")
			alive()
		}
		w.leaveIfDeleting(pod)
	}
	return len(joined)
}

func (w *world) expectTakenBack(action string) {
	w.Helper()
	if got := w.actions[action].Status; got.Phase != "RolledBack" {
		w.Errorf("the action is %s (%s)", got.Phase, got.Message)
	}
	w.pass()
	w.expectUntouched("old")
	if left := w.opened(); len(left) != 0 {
		w.Errorf("%v are left of it", left)
	}
}

// reveal tells a new process's store what agents and users have on the API server.
func (w *world) reveal(pods ...*corev1.Pod) {
	w.Helper()
	for _, pod := range pods {
		w.must(w.store.Update(statetest.Selecting(statetest.McKube("default", pod.Name, pod.Name, "High", 50, 50), pod.Name)))
		w.must(w.store.Update(heldFor(pod, pod.Spec.NodeName, 50)))
	}
	nodes := &corev1.NodeList{}
	w.must(w.client.List(w.ctx, nodes))
	for i := range nodes.Items {
		w.must(w.store.Update(statetest.Slice(&nodes.Items[i], statetest.Cores(2)...)))
	}
	w.sync()
}

// leaveIfDeleting drains the node, once that is to be.
func (w *world) leaveIfDeleting(pod *corev1.Pod) {
	w.Helper()
	claim := &karpv1.NodeClaim{}
	if err := w.client.Get(w.ctx, types.NamespacedName{Name: "old"}, claim); err == nil && claim.DeletionTimestamp == nil {
		return
	}
	if w.client.Get(w.ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, &corev1.Pod{}) == nil {
		w.evict(pod)
	}
}
