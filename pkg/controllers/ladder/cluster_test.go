package ladder_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

const granularity = 100

var start = statetest.Birth.Add(time.Hour)

// cluster is a cluster of nodes with containers on their cores, as in the cache.
type cluster struct {
	nodes   map[string]*corev1.Node
	rtNodes map[string]*v1alpha1.RTNode
	cores   map[string]int
	// capacity of each core; 0: the greatest.
	capacity rt.PPM
	claims   map[string]*resourcev1.ResourceClaim
	mckubes  map[string]*mcv1.McKube
	pods     map[string]*corev1.Pod
	budgets  []policyv1.PodDisruptionBudget
	// more is what belongs to further containers, by their pods.
	more map[string][]runtime.Object
}

func newCluster() *cluster {
	return &cluster{
		nodes: map[string]*corev1.Node{}, rtNodes: map[string]*v1alpha1.RTNode{}, cores: map[string]int{},
		claims: map[string]*resourcev1.ResourceClaim{}, mckubes: map[string]*mcv1.McKube{}, pods: map[string]*corev1.Pod{},
		more: map[string][]runtime.Object{},
	}
}

func (w *cluster) node(name string, cores int) *corev1.Node {
	n := statetest.Node(name, types.UID(name))
	r := statetest.RTNode(n)
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAgentAlive, Status: metav1.ConditionTrue}}
	w.nodes[name], w.rtNodes[name], w.cores[name] = n, r, cores
	return n
}

// run makes a pod of one container run on a core; core -1 is a claim on core 0 that the spec has no core for.
func (w *cluster) run(name, node string, criticality mcv1.Criticality, lowMs, highMs int64, core int) *corev1.Pod {
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name+"-claim"), node)
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "set", Controller: ptr.To(true)}}
	p.Labels["app"] = name
	m := statetest.Selecting(statetest.McKube("default", name, name, criticality, lowMs, highMs), name)
	w.pods[name], w.mckubes[name] = p, m
	need := highMs
	if criticality == "Low" {
		need = lowMs
	}
	w.claims[name] = statetest.Claim(p, name+"-claim", "app", node, max(core, 0), ppm(need))
	if core >= 0 {
		w.serve(p, "app", criticality, lowMs, highMs, core)
	}
	return p
}

// aux gives a pod one more container, on a core of its node: the second is "aux", the next "auxx".
func (w *cluster) aux(name string, criticality mcv1.Criticality, ms int64, core int) {
	p, container := w.pods[name], "aux"+strings.Repeat("x", len(w.more[name])/2)
	more := p.Spec.Containers[0].DeepCopy()
	more.Name, more.Resources.Claims = container, nil
	p.Spec.Containers = append(p.Spec.Containers, *more)
	statetest.WithClaim(p, container, name+"-"+container)
	m := statetest.Selecting(statetest.McKube("default", name+"-"+container, name, criticality, ms, ms), name)
	w.mckubes[name].Spec.Container, m.Spec.Container = "app", container
	m.Spec.Migration = w.mckubes[name].Spec.Migration
	w.more[name] = append(w.more[name], m, statetest.Claim(p, name+"-"+container, container, p.Spec.NodeName, core, ppm(ms)))
	w.serve(p, container, criticality, ms, ms, core)
}

// serve makes a container a server of its node, with its highest budget.
func (w *cluster) serve(p *corev1.Pod, container string, criticality mcv1.Criticality, lowMs, highMs int64, core int) {
	r := w.rtNodes[p.Spec.NodeName]
	r.Spec.Servers = append(r.Spec.Servers, v1alpha1.RTServer{
		PodUID: p.UID, Namespace: "default", Pod: p.Name, Container: container, Criticality: string(criticality),
		PeriodUs: 100_000, DeadlineUs: 100_000, BudgetLowUs: lowMs * 1000, BudgetHighUs: highMs * 1000, Cores: []int32{int32(core)},
	})
	r.Status.Servers = append(r.Status.Servers, v1alpha1.RTServerStatus{
		PodUID: p.UID, Container: container, BudgetUs: highMs * 1000, PeriodUs: 100_000, Cores: []int32{int32(core)}, Level: v1alpha1.LevelHigh,
	})
}

// gone removes pods and all their objects.
func (w *cluster) gone(names ...string) {
	for _, name := range names {
		delete(w.pods, name)
		delete(w.mckubes, name)
		delete(w.claims, name)
		delete(w.more, name)
		for _, r := range w.rtNodes {
			r.Spec.Servers = slices.DeleteFunc(r.Spec.Servers, func(s v1alpha1.RTServer) bool { return s.Pod == name })
			r.Status.Servers = slices.DeleteFunc(r.Status.Servers, func(s v1alpha1.RTServerStatus) bool { return s.PodUID == types.UID(name) })
		}
	}
}

// budget lets a number of some pods go.
func (w *cluster) budget(name string, allowed int32, pods ...string) {
	b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: pods}}}
	b.Status.DisruptionsAllowed = allowed
	w.budgets = append(w.budgets, b)
}

// applied is what the agent reports of a pod's container.
func (w *cluster) applied(node, pod string) *v1alpha1.RTServerStatus {
	r := w.rtNodes[node]
	for i := range r.Status.Servers {
		if r.Status.Servers[i].PodUID == types.UID(pod) {
			return &r.Status.Servers[i]
		}
	}
	panic(pod)
}

func ppm(ms int64) rt.PPM { return rt.PPM(ms*10_000 + 1_000) }

// snapshot is the current snapshot of the cluster.
func (w *cluster) snapshot() *state.Snapshot {
	var all []runtime.Object
	for name, n := range w.nodes {
		cores := statetest.Cores(w.cores[name])
		for i := range cores {
			cores[i].Capacity = cmp.Or(w.capacity, cores[i].Capacity)
		}
		all = append(all, n.DeepCopy(), statetest.Slice(n, cores...), w.rtNodes[name].DeepCopy())
	}
	for name, p := range w.pods {
		all = append(all, p.DeepCopy(), w.mckubes[name].DeepCopy(), w.claims[name].DeepCopy())
		for _, o := range w.more[name] {
			all = append(all, o.DeepCopyObject())
		}
	}
	return statetest.Build(all...)
}

// planner is the planner's view of a node on which containers are affected by a source.
func (w *cluster) planner(node, source string, affected ...string) ladder.Planner {
	s := w.snapshot()
	n, _ := s.NodeView(node)
	p := ladder.Planner{
		Snapshot: s, Node: n, Episode: ladder.Episode{Node: n.RTNode.UID, Begun: start, Active: true, Stage: source},
		Ticket: func(orchestration.Request) (orchestration.Ticket, bool) { return orchestration.Ticket{}, false },
		Held:   func(types.UID) bool { return false }, Fits: func(string, ...*state.PodView) bool { return true },
		Passage: func(*state.PodView, string) ladder.Passage { return ladder.Passage{} },
		Leave:   pdb.NewIndex(w.budgets).Leave(slices.Collect(maps.Values(w.pods))...),
		Pool:    "edge", Options: ladder.Defaults(), Now: start,
	}
	for _, name := range affected {
		v, ok := n.Server(name + "/app")
		if !ok {
			panic(name)
		}
		p.Affected = append(p.Affected, ladder.AffectedContainer{ServerView: v, Source: source, Detail: "it suffers", Wanted: ladder.Wanted(v), Last: start})
	}
	return p
}

// chosen is the action in words: "Kind: what it does".
func chosen(t *testing.T, p ladder.Planner) string {
	t.Helper()
	a, ok := p.Choose()
	if !ok {
		return "nothing"
	}
	return fmt.Sprintf("%s: %s", a.Kind, a.What)
}
