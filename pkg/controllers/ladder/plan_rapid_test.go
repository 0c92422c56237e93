package ladder_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// someCluster is a node under pressure among others, with containers on any cores that hold them.
func someCluster(t *rapid.T) (*cluster, ladder.Planner) {
	w := newCluster()
	nodes := rapid.IntRange(1, 3).Draw(t, "nodes")
	used := map[string][]int64{}
	for i := range nodes {
		name := string(rune('a' + i))
		w.node(name, rapid.IntRange(1, 4).Draw(t, "cores"))
		used[name] = make([]int64, w.cores[name])
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "pods") {
		node := "a"
		if nodes > 1 && rapid.IntRange(0, 2).Draw(t, "elsewhere") == 0 {
			node = "b"
		}
		core := rapid.IntRange(0, w.cores[node]-1).Draw(t, "core")
		budget := rapid.Int64Range(1, 60).Draw(t, "budget")
		if used[node][core]+budget > 88 {
			continue
		}
		used[node][core] += budget + 1
		name := fmt.Sprintf("p%02d", i)
		w.run(name, node, rapid.SampledFrom([]mcv1.Criticality{"Low", "Middle", "High"}).Draw(t, "criticality"), budget, budget, core)
		if rapid.IntRange(0, 4).Draw(t, "stays") == 0 {
			w.mckubes[name].Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
		}
		if second := rapid.IntRange(0, 3*w.cores[node]).Draw(t, "second"); second < w.cores[node] && used[node][second]+budget <= 88 {
			used[node][second] += budget + 1
			w.aux(name, w.mckubes[name].Spec.Criticality, budget, second)
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "homeless") == 0 {
		w.run("homeless", "a", "High", 50, 50, -1)
	}
	names := slices.DeleteFunc(namesOf(w), func(name string) bool {
		return w.pods[name].Spec.NodeName != "a" || w.mckubes[name].Spec.Criticality == "Low"
	})
	if len(names) == 0 {
		t.Skip("no container on node a can be affected")
	}
	source := rapid.SampledFrom([]string{ladder.SourceOverruns, ladder.SourceMisses}).Draw(t, "source")
	affected := rapid.SampledFrom(names).Draw(t, "affected")
	if slices.Contains(names, "homeless") {
		source, affected = ladder.SourceNoCore, "homeless"
	}
	return w, w.planner("a", source, affected)
}

func namesOf(w *cluster) []string {
	var out []string
	for name := range w.pods {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Any choice helps, and every core that gains passes its test. No pod as critical is evicted, and no more critical pod is moved.
// The choice touches no pod that another action has or that must stay, or, except as the last resort, that was moved before.
// There is no cheaper level and no better action of the same level. The same question has the same answer.
func TestAnyChoice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, p := someCluster(t)
		held, moved := map[types.UID]bool{}, map[types.UID]bool{}
		before := &v1alpha1.RTAction{Spec: v1alpha1.RTActionSpec{Kind: "Rearrange"}, Status: v1alpha1.RTActionStatus{Phase: "Succeeded"}}
		for _, name := range namesOf(w) {
			switch rapid.IntRange(0, 9).Draw(t, "fate") {
			case 0:
				held[types.UID(name)] = true
			case 1:
				moved[types.UID(name)] = true
				before.Spec.Moves = append(before.Spec.Moves, v1alpha1.ActionMove{PodUID: types.UID(name), Container: "app"})
			}
		}
		p.Held, p.Answers = func(uid types.UID) bool { return held[uid] }, []*v1alpha1.RTAction{before}
		vain := rapid.SliceOfDistinct(rapid.SampledFrom(rules.Kinds), func(k rules.Kind) rules.Kind { return k }).Draw(t, "vain")
		p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
			return orchestration.Ticket{Phase: rules.Failed}, slices.Contains(vain, r.Kind)
		}
		a, ok := p.Choose()
		if again, same := p.Choose(); same != ok || again.What != a.What {
			t.Fatalf("%q, and then %q", a.What, again.What)
		}
		if !ok {
			return
		}
		top := p.Affected[0].Criticality
		if a.Cured <= 0 && a.Relief < 10_000 {
			t.Fatalf("%s brings nothing: %+v", a.What, a)
		}
		for _, uid := range touched(a) {
			m := w.mckubes[string(uid)].Spec
			criticality, _ := rt.ParseCriticality(string(m.Criticality))
			switch {
			case held[uid]:
				t.Fatalf("%s: %s is in other hands", a.What, uid)
			case moved[uid] && a.Request.Cause != p.LastResort():
				t.Fatalf("%s: %s was moved already", a.What, uid)
			case criticality > top:
				t.Fatalf("%s: %s is more critical", a.What, uid)
			case a.Kind == rules.Preempt && criticality >= top:
				t.Fatalf("%s: %s is not less critical", a.What, uid)
			case (a.Kind == rules.Migrate || a.Kind == rules.ReplaceNode) && m.Migration != nil:
				t.Fatalf("%s: %s must stay", a.What, uid)
			}
		}
		if a.Request.Cause != p.Cause() && (a.Kind != rules.ReplaceNode || !slices.ContainsFunc(touched(a), func(uid types.UID) bool { return moved[uid] })) {
			t.Fatalf("%s for %s", a.What, a.Request.Cause)
		}
		if a.Kind == rules.Rearrange {
			holds(t, p.Node, a)
		}
		if a.Kind == rules.Migrate && p.Affected[0].PodUID != a.Pods[0] && a.Cured == 0 {
			unbeaten(t, p, a)
		}
		if a.Kind == rules.OpenNode && !slices.Contains(vain, rules.Migrate) {
			useful(t, w, p, a)
		}
	})
}

// touched are the pods that an action moves, as in its record.
func touched(a ladder.Answer) []types.UID {
	out := slices.Clone(a.Pods)
	for _, m := range a.Moves {
		out = append(out, m.PodUID)
	}
	for _, p := range a.Request.Displaces {
		out = append(out, p.UID)
	}
	return out
}

// holds makes the moves, and expects each core to pass.
func holds(t *rapid.T, n *state.NodeView, a ladder.Answer) {
	on := map[int][]rt.Server{}
	for _, s := range n.Servers {
		core := s.Physical
		for _, m := range a.Moves {
			if m.PodUID == s.PodUID && m.Container == s.Container {
				core = int(m.Core)
			}
		}
		on[core] = append(on[core], s.InForce())
	}
	for _, c := range n.Cores {
		if v := rt.Holds(c.Core, on[c.ID]); !v.Admitted {
			t.Fatalf("%s: core %d does not hold: %s", a.What, c.ID, v)
		}
	}
}

// unbeaten checks a move that frees bandwidth: no other single pod of the core that could move as well frees more and costs
// less.
func unbeaten(t *rapid.T, p ladder.Planner, a ladder.Answer) {
	own, _ := p.Node.Server(p.Affected[0].ID)
	at, _ := p.Node.Server(string(a.Pods[0]) + "/app")
	chosen := at.InForce()
	if _, more := p.Node.Server(string(a.Pods[0]) + "/aux"); more {
		return
	}
	for i := range p.Node.Servers {
		o := &p.Node.Servers[i]
		view, ok := p.Snapshot.Pod(o.PodUID)
		if o.Physical != own.Physical || o.ID == own.ID || !ok || p.Held(o.PodUID) || ladder.MovedBy(p.Answers)[o.PodUID] || o.McKube.Spec.Migration != nil || !view.Owned {
			continue
		}
		if _, goes := p.Snapshot.Destination(o.PodUID); !goes || p.Overfills(o.PodUID) { // the target would be as full as this core is
			continue
		}
		in := o.InForce()
		if o.Criticality < at.Criticality && in.Charge(granularity) > chosen.Charge(granularity) {
			t.Fatalf("%s, but %s is less critical and frees more", a.What, o.ID)
		}
	}
}

// useful checks that the pods go to an opened node of the same kind.
func useful(t *rapid.T, w *cluster, p ladder.Planner, a ladder.Answer) {
	w.node("opened", w.cores["a"])
	p.Snapshot = w.snapshot()
	p.Node, _ = p.Snapshot.NodeView("a")
	for i := range p.Affected {
		p.Affected[i].ServerView, _ = p.Node.Server(p.Affected[i].ID)
	}
	if then, _ := p.Choose(); then.Kind == rules.OpenNode && slices.Equal(then.Pods, a.Pods) {
		t.Fatalf("%s, and nobody goes there", a.What)
	}
}

// Level by level: the planner does not choose again what was refused once, so the escalation ends, and it never goes down.
func TestEscalationRisesAndEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		_, p := someCluster(t)
		tried := map[string]bool{}
		key := func(r orchestration.Request) string {
			return fmt.Sprint(r.Kind, r.Pods, r.Moves, r.TargetNode)
		}
		p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
			return orchestration.Ticket{Name: "x", Phase: rules.Refused}, tried[key(r)]
		}
		escalationLevel := 0
		for range 1000 {
			a, ok := p.Choose()
			if !ok {
				return
			}
			if a.Kind.Rung() < escalationLevel {
				t.Fatalf("down from rung %d to %s", escalationLevel, a.Kind)
			}
			if tried[key(a.Request)] {
				t.Fatalf("%s again", a.What)
			}
			escalationLevel, tried[key(a.Request)] = a.Kind.Rung(), true
		}
		t.Fatal("it does not end")
	})
}
