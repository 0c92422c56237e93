package rtruntime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// site is a cluster in the making. Pods have their names as UIDs.
type site struct{ objects []runtime.Object }

// budgeted is a container with its McKube: so many percent of a core.
type budgeted struct {
	container   string
	criticality mcv1.Criticality
	percent     int64
	core        int
}

func (s *site) node(name string, cores int, change ...func(*corev1.Node)) {
	n := statetest.Node(name, types.UID(name))
	for _, c := range change {
		c(n)
	}
	s.objects = append(s.objects, n, statetest.Slice(n, statetest.Cores(cores)...))
}

// pod adds a pod with servers; node is empty for one that waits. Its charge is its percentage and a tenth.
func (s *site) pod(name, node string, servers ...budgeted) *corev1.Pod {
	p := statetest.Pod("default", name, types.UID(name))
	for _, v := range servers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: v.container})
		claim := name + "-" + v.container
		statetest.WithClaim(p, v.container, claim)
		m := statetest.McKube("default", claim, name, v.criticality, v.percent, v.percent)
		m.Spec.Container = v.container
		s.objects = append(s.objects, m, statetest.Claim(p, claim, v.container, node, v.core, rt.PPM(v.percent*10_000+1_000)))
	}
	if node != "" {
		statetest.On(p, node)
	} else {
		unschedulable(p, statetest.Birth)
	}
	s.objects = append(s.objects, p)
	return p
}

func unschedulable(p *corev1.Pod, since time.Time) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: cannot allocate all claims.", LastTransitionTime: metav1.NewTime(since),
	})
}

// scene is that of pod "high".
func (s *site) scene(t interface{ Fatal(...any) }) rtruntime.Scene {
	snapshot := statetest.Build(s.objects...)
	pod, ok := snapshot.Pod("high")
	if !ok {
		t.Fatal("no pod high")
	}
	return rtruntime.Scene{Snapshot: snapshot, Pod: pod}
}

func one(criticality mcv1.Criticality, percent int64, core int) budgeted {
	return budgeted{"app", criticality, percent, core}
}

func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func TestCheapestRoom(t *testing.T) {
	tests := []struct {
		name  string
		build func(*site)
		scene func(*rtruntime.Scene)
		want  string // node, cores, victims; empty: none
	}{
		{name: "nobody has to go", build: func(s *site) {
			s.node("a", 2)
			s.pod("low", "a", one("Low", 80, 0))
			s.pod("high", "", one("High", 50, 0))
		}, want: "a [1] []"},
		{name: "one is fewer than two", build: func(s *site) {
			s.node("a", 2)
			s.pod("low-1", "a", one("Low", 40, 0))
			s.pod("low-2", "a", one("Low", 40, 0))
			s.pod("low-3", "a", one("Low", 80, 1))
			s.pod("high", "", one("High", 80, 0))
		}, want: "a [1] [low-3]"},
		{name: "two of criticality Low cost less than one of Middle", build: func(s *site) {
			s.node("a", 2)
			s.pod("low-1", "a", one("Low", 40, 0))
			s.pod("low-2", "a", one("Low", 40, 0))
			s.pod("middle", "a", one("Middle", 85, 1))
			s.pod("high", "", one("High", 80, 0))
		}, want: "a [0] [low-1 low-2]"},
		{name: "also on one core", build: func(s *site) {
			s.node("a", 1)
			s.pod("low-1", "a", one("Low", 20, 0))
			s.pod("low-2", "a", one("Low", 20, 0))
			s.pod("middle", "a", one("Middle", 40, 0))
			s.pod("high", "", one("High", 40, 0))
		}, want: "a [0] [low-1 low-2]"},
		{name: "five of criticality Low cost more", build: func(s *site) {
			s.node("a", 2)
			for i := range 5 {
				s.pod(fmt.Sprintf("low-%d", i), "a", one("Low", 16, 0))
			}
			s.pod("middle", "a", one("Middle", 80, 1))
			s.pod("high", "", one("High", 80, 0))
		}, want: "a [1] [middle]"},
		{name: "one whose containers are on both cores costs less than one of each", build: func(s *site) {
			s.node("a", 2)
			s.pod("both", "a", budgeted{"x", "Low", 40, 0}, budgeted{"y", "Low", 40, 1})
			s.pod("low-0", "a", one("Low", 30, 0))
			s.pod("middle-1", "a", one("Middle", 40, 1))
			s.pod("high", "", budgeted{"x", "High", 50, 0}, budgeted{"y", "High", 45, 0})
		}, want: "a [0 1] [both]"},
		{name: "one who is enough for both costs less than one for each", build: func(s *site) {
			s.node("a", 1)
			s.pod("low-1", "a", one("Low", 20, 0))
			s.pod("low-2", "a", one("Low", 21, 0))
			s.pod("large", "a", one("Low", 40, 0))
			s.pod("high", "", budgeted{"x", "High", 22, 0}, budgeted{"y", "High", 21, 0})
		}, want: "a [0 0] [large]"},
		{name: "of equally many the least critical", build: func(s *site) {
			s.node("a", 2)
			s.pod("middle", "a", one("Middle", 60, 0))
			s.pod("low", "a", one("Low", 80, 1))
			s.pod("high", "", one("High", 60, 0))
		}, want: "a [1] [low]"},
		{name: "of equally critical the smallest", build: func(s *site) {
			s.node("a", 1)
			s.node("b", 1)
			s.pod("low-1", "a", one("Low", 80, 0))
			s.pod("low-2", "b", one("Low", 50, 0))
			s.pod("high", "", one("High", 60, 0))
		}, want: "b [0] [low-2]"},
		{name: "equals stay", build: func(s *site) {
			s.node("a", 1)
			s.pod("equal", "a", one("Middle", 80, 0))
			s.pod("high", "", one("Middle", 60, 0))
		}},
		{name: "the seed's core 2: Low goes for High, Middle stays", build: func(s *site) {
			s.node("a", 1)
			s.pod("middle", "a", one("Middle", 40, 0))
			s.pod("low", "a", one("Low", 35, 0))
			s.pod("high", "", one("High", 25, 0))
		}, want: "a [0] [low]"},
		{name: "a node that the pod does not tolerate", build: func(s *site) {
			s.node("a", 1, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
			})
			s.pod("low", "a", one("Low", 80, 0))
			s.pod("high", "", one("High", 60, 0))
		}},
		{name: "a node that the pod does not select", build: func(s *site) {
			s.node("a", 1)
			s.node("b", 1, labelled("zone", "b"))
			s.pod("low-1", "a", one("Low", 60, 0))
			s.pod("low-2", "b", one("Low", 80, 0))
			s.pod("high", "", one("High", 60, 0)).Spec.NodeSelector = map[string]string{"zone": "b"}
		}, want: "b [0] [low-2]"},
		{name: "a node that lacks something else", build: func(s *site) {
			s.node("a", 1)
			s.node("b", 1)
			s.pod("low-1", "a", one("Low", 60, 0))
			s.pod("low-2", "b", one("Low", 80, 0))
			s.pod("high", "", one("High", 60, 0))
		}, scene: func(s *rtruntime.Scene) {
			s.Otherwise = func(node string, gone map[types.UID]bool) bool { return node == "b" && gone["low-2"] }
		}, want: "b [0] [low-2]"},
		{name: "a claim of nobody stays", build: func(s *site) {
			s.node("a", 1)
			p := statetest.Pod("default", "gone", "gone", "app")
			s.objects = append(s.objects, statetest.Claim(p, "gone-app", "app", "a", 0, 801_000))
			s.pod("high", "", one("High", 60, 0))
		}},
		{name: "a pod is as critical as its most critical container", build: func(s *site) {
			s.node("a", 3)
			s.pod("mixed", "a", budgeted{"a", "Low", 60, 0}, budgeted{"b", "High", 80, 1})
			s.pod("low", "a", one("Low", 80, 2))
			s.pod("high", "", one("High", 60, 0))
		}, want: "a [2] [low]"},
		{name: "all containers of a victim go", build: func(s *site) {
			s.node("a", 3)
			s.pod("pair", "a", budgeted{"a", "Low", 60, 0}, budgeted{"b", "Low", 60, 1})
			s.pod("low", "a", one("Low", 80, 2))
			s.pod("high", "", one("High", 60, 0))
		}, want: "a [2] [low]"},
		{name: "each container of the pod gets a core of one node", build: func(s *site) {
			s.node("a", 1)
			s.node("b", 2)
			s.pod("low-1", "a", one("Low", 60, 0))
			s.pod("low-2", "b", one("Low", 80, 0))
			s.pod("low-3", "b", one("Low", 80, 1))
			s.pod("high", "", budgeted{"x", "High", 60, 0}, budgeted{"y", "High", 70, 0})
		}, want: "b [0 1] [low-2 low-3]"},
		{name: "a container that has its core binds the others to the node", build: func(s *site) {
			s.node("a", 1)
			s.node("b", 2)
			s.pod("low-1", "a", one("Low", 40, 0))
			s.pod("low-2", "b", one("Low", 80, 0))
			p := s.pod("high", "", budgeted{"x", "High", 60, 0}, budgeted{"y", "High", 70, 0})
			for i, o := range s.objects {
				if m, ok := o.(metav1.Object); ok && m.GetName() == "high-x" && strings.HasPrefix(string(m.GetUID()), "claim-") {
					s.objects[i] = statetest.Claim(p, "high-x", "x", "b", 1, 601_000)
				}
			}
		}, want: "b [1 0] [low-2]"},
		{name: "cores of another plan are taken", build: func(s *site) {
			s.node("a", 2)
			s.pod("low-1", "a", one("Low", 60, 0))
			s.pod("low-2", "a", one("Low", 80, 1))
			s.pod("high", "", one("High", 60, 0))
			s.pod("other", "", one("High", 60, 0))
		}, scene: func(s *rtruntime.Scene) {
			other, _ := s.Snapshot.Pod("other")
			s.Beside = []state.Preempting{{Pod: other, Criticality: rt.High, Preemption: state.Preemption{
				Node: "a", Core: 0, Victims: []types.UID{"low-1"}, Deadline: metav1.NewTime(statetest.Birth),
			}}}
		}, want: "a [1] [low-2]"},
		{name: "who is leaving need not be evicted", build: func(s *site) {
			s.node("a", 1)
			now := metav1.NewTime(statetest.Birth)
			s.pod("low", "a", one("Low", 80, 0)).DeletionTimestamp = &now
			s.pod("high", "", one("High", 60, 0))
		}, scene: func(s *rtruntime.Scene) { s.Patient = true }, want: "a [0] []"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &site{}
			test.build(s)
			scene := s.scene(t)
			if test.scene != nil {
				test.scene(&scene)
			}
			got := ""
			if r, ok := scene.Cheapest(); ok {
				slices.Sort(r.Victims)
				got = fmt.Sprintf("%s %v %v", r.Node, r.Cores, r.Victims)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if test.want != "" && scene.Otherwise == nil && !scene.Patient && !scene.Possible() {
				t.Error("the index knows of no room")
			}
		})
	}
}
