package rtruntime_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

var criticalities = []mcv1.Criticality{"Low", "Middle", "High"}

// drawSite draws a small cluster, in which nothing is overcommitted, and pods that wait.
func drawSite(t *rapid.T) (s *site, waiting []types.UID) {
	s = &site{}
	for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		node, cores := fmt.Sprintf("n%d", n), rapid.IntRange(1, 3).Draw(t, "cores")
		s.node(node, cores)
		for core := range cores {
			left := int64(88)
			for i := range rapid.IntRange(0, 4).Draw(t, "running") {
				percent := rapid.Int64Range(5, 60).Draw(t, "percent")
				if percent+1 > left {
					break
				}
				left -= percent + 1
				s.pod(fmt.Sprintf("%s-%d-%d", node, core, i), node, one(rapid.SampledFrom(criticalities).Draw(t, "criticality"), percent, core))
			}
		}
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "waiting") {
		name := fmt.Sprintf("w%d", i)
		servers := []budgeted{}
		for j := range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "containers") {
			servers = append(servers, budgeted{fmt.Sprintf("c%d", j), rapid.SampledFrom(criticalities).Draw(t, "criticality"), rapid.Int64Range(5, 80).Draw(t, "percent"), 0})
		}
		s.pod(name, "", servers...)
		waiting = append(waiting, types.UID(name))
	}
	return s, waiting
}

// Plans made one after the other share neither cores nor victims; their victims are less critical, and without them
// the cores pass the admission test.
func TestPlansDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, waiting := drawSite(t)
		snapshot := statetest.Build(s.objects...)
		var plans []state.Preempting
		for _, uid := range waiting {
			pod, _ := snapshot.Pod(uid)
			r, ok := rtruntime.Scene{Snapshot: snapshot, Pod: pod, Beside: plans}.Cheapest()
			if !ok {
				continue
			}
			holds(t, snapshot, pod, r)
			if len(r.Victims) == 0 {
				continue
			}
			plan := state.Preempting{Pod: pod, Preemption: state.Preemption{
				Node: r.Node, Core: r.Cores[0], Further: r.Cores[1:], Victims: r.Victims, Deadline: metav1.NewTime(statetest.Birth.Add(time.Hour)),
			}}
			for _, other := range plans {
				apart(t, plan, other)
			}
			plans = append(plans, plan)
		}
	})
}

func apart(t *rapid.T, a, b state.Preempting) {
	for _, core := range a.Cores() {
		if a.Node == b.Node && slices.Contains(b.Cores(), core) {
			t.Fatalf("%s and %s share core %d of %s", a.Pod.Name, b.Pod.Name, core, a.Node)
		}
	}
	for _, v := range a.Victims {
		if slices.Contains(b.Victims, v) {
			t.Fatalf("%s and %s share victim %s", a.Pod.Name, b.Pod.Name, v)
		}
	}
}

// holds checks a room by itself: every container on its core, beside those that stay.
func holds(t *rapid.T, snapshot *state.Snapshot, pod *state.PodView, r rtruntime.Room) {
	n, _ := snapshot.NodeView(r.Node)
	most := rt.Low
	added := map[int][]rt.Server{}
	for i, g := range pod.Governed {
		most = max(most, g.Server.Criticality)
		added[r.Cores[i]] = append(added[r.Cores[i]], g.Server)
	}
	for id, servers := range added {
		core, _ := n.Core(id)
		for _, o := range n.Claims(core).Servers {
			if v, _ := n.Server(o.ID); !slices.Contains(r.Victims, v.PodUID) {
				servers = append(servers, o)
			}
		}
		if v := rt.Holds(core.Core, servers); !v.Admitted {
			t.Fatalf("core %d of %s: %s", id, r.Node, v)
		}
	}
	for _, v := range r.Servers {
		if v.Criticality >= most {
			t.Fatalf("%s (%s) gives way to %s (%s)", v.ID, v.Criticality, pod.Name, most)
		}
	}
}

// For pods with one container and no other plans, the index of the state cache finds as cheap a set.
func TestCheapestAgreesWithTheIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, waiting := drawSite(t)
		snapshot := statetest.Build(s.objects...)
		pod, _ := snapshot.Pod(waiting[0])
		if len(pod.Governed) > 1 {
			t.Skip("several containers")
		}
		r, ok := rtruntime.Scene{Snapshot: snapshot, Pod: pod}.Cheapest()
		_, gates := snapshot.BestCore(pod.Governed[0].Server)
		if len(gates) == 0 {
			if !ok || len(r.Victims) > 0 {
				t.Fatalf("a core is free, got %+v", r)
			}
			return
		}
		plan, found := snapshot.Victims(pod.Governed[0].Server)
		if ok != found || len(r.Victims) != len(plan.Victims) || found && r.Loss != loss(plan.Victims) {
			t.Fatalf("got %+v %v, the index has %+v %v", r, ok, plan, found)
		}
	})
}

func loss(servers []state.ServerView) (total int64) {
	for _, v := range servers {
		total += rt.Loss(v.Criticality, v.Charge(100))
	}
	return total
}

// drawBudgets has some pods be kept by budgets, alone or together.
func drawBudgets(t *rapid.T, scene *rtruntime.Scene, pods int) (keeps func(gone []types.UID) bool) {
	scene.Under, scene.Allowed = map[types.UID]string{}, map[string]int{"one": 1, "two": 2}
	for i := range pods {
		switch uid := types.UID(fmt.Sprintf("p%d", i)); rapid.SampledFrom([]string{"", "", "none", "one", "two"}).Draw(t, "budget") {
		case "none":
			scene.Closed = append(scene.Closed, uid)
		case "one":
			scene.Under[uid] = "one"
		case "two":
			scene.Under[uid] = "two"
		}
	}
	return func(gone []types.UID) bool {
		taken := map[string]int{}
		for _, uid := range gone {
			if slices.Contains(scene.Closed, uid) {
				return true
			}
			taken[scene.Under[uid]]++
		}
		return taken["one"] > 1 || taken["two"] > 2
	}
}

// No set of pods whose going would do, and which budgets let go, costs less, whatever cores the containers are given.
func TestCheapestIsTheLeastLoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &site{}
		cores := rapid.IntRange(1, 3).Draw(t, "cores")
		s.node("n", cores)
		left := slices.Repeat([]int64{88}, cores)
		running := rapid.IntRange(0, 7).Draw(t, "running")
		for i := range running {
			var servers []budgeted
			for j := range rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "containers") {
				core, percent := rapid.IntRange(0, cores-1).Draw(t, "core"), rapid.Int64Range(5, 60).Draw(t, "percent")
				if percent+1 <= left[core] {
					left[core] -= percent + 1
					servers = append(servers, budgeted{fmt.Sprintf("c%d", j), rapid.SampledFrom(criticalities).Draw(t, "criticality"), percent, core})
				}
			}
			if len(servers) > 0 {
				s.pod(fmt.Sprintf("p%d", i), "n", servers...)
			}
		}
		var wants []budgeted
		for j := range rapid.IntRange(1, 3).Draw(t, "wants") {
			wants = append(wants, budgeted{fmt.Sprintf("w%d", j), "High", rapid.Int64Range(5, 80).Draw(t, "wanted"), 0})
		}
		s.pod("high", "", wants...)
		snapshot := statetest.Build(s.objects...)
		pod, _ := snapshot.Pod("high")
		scene := rtruntime.Scene{Snapshot: snapshot, Pod: pod}
		keeps := drawBudgets(t, &scene, running)
		r, ok := scene.Cheapest()
		least, possible := leastLoss(snapshot, pod, keeps)
		if keeps(r.Victims) {
			t.Fatalf("budgets keep %v", r.Victims)
		}
		if ok != possible || ok && r.Loss != least {
			t.Fatalf("got %v at %d (%v), the least is %d (%v)", r.Victims, r.Loss, ok, least, possible)
		}
	})
}

// leastLoss looks at all pods less critical than High on node n that are not kept, and at all cores for each container.
func leastLoss(snapshot *state.Snapshot, pod *state.PodView, keeps func([]types.UID) bool) (least int64, ok bool) {
	n, _ := snapshot.NodeView("n")
	var may []types.UID
	for i := range n.Servers {
		if uid := n.Servers[i].PodUID; !slices.Contains(may, uid) && !slices.ContainsFunc(n.Servers, func(v state.ServerView) bool { return v.PodUID == uid && v.Criticality == rt.High }) {
			may = append(may, uid)
		}
	}
	for mask := range 1 << len(may) {
		var set []types.UID
		for i, uid := range may {
			if mask&(1<<i) != 0 {
				set = append(set, uid)
			}
		}
		if keeps(set) {
			continue
		}
		gone := func(v state.ServerView) bool { i := slices.Index(may, v.PodUID); return i >= 0 && mask&(1<<i) != 0 }
		loads, loss := map[int][]rt.Server{}, int64(0)
		for _, v := range n.Servers {
			if gone(v) {
				loss += rt.Loss(v.Criticality, v.Charge(n.Granularity))
			}
		}
		for i := range n.Cores {
			for _, o := range n.Claims(&n.Cores[i]).Servers {
				if v, _ := n.Server(o.ID); !gone(*v) {
					loads[n.Cores[i].ID] = append(loads[n.Cores[i].ID], o)
				}
			}
		}
		if (!ok || loss < least) && packs(n, loads, pod.Governed) {
			least, ok = loss, true
		}
	}
	return least, ok
}

// packs tells whether each container finds a core.
func packs(n *state.NodeView, loads map[int][]rt.Server, wants []state.Governed) bool {
	if len(wants) == 0 {
		return true
	}
	for i := range n.Cores {
		before := loads[n.Cores[i].ID]
		if !rt.Admit(n.Cores[i].Core, before, wants[0].Server).Admitted {
			continue
		}
		loads[n.Cores[i].ID] = append(slices.Clip(before), wants[0].Server)
		if packs(n, loads, wants[1:]) {
			return true
		}
		loads[n.Cores[i].ID] = before
	}
	return false
}
