package observe

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// RTNodes and McKubes are the resources of real-time work.
var (
	RTNodes = schema.GroupVersionResource{Group: v1alpha1.Group, Version: "v1alpha1", Resource: "rtnodes"}
	McKubes = schema.GroupVersionResource{Group: mcv1.Group, Version: "v1", Resource: "mckubes"}
)

// Resources are all resources that a Recorder watches without their types, with the kinds of their lists.
func Resources() map[schema.GroupVersionResource]string {
	return map[schema.GroupVersionResource]string{NodeClaims: "NodeClaimList", RTNodes: "RTNodeList", McKubes: "McKubeList"}
}

// Core is a core for real-time work, as the agent of its node reports it. Shares are parts of the whole core.
type Core struct {
	ID       int
	Capacity float64 // what may be promised
	Promised float64 // what is, with the time by which budgets are overrun
	Servers  []Server
}

// Server is a container with a real-time budget in force.
type Server struct {
	Namespace, Pod, Container string
	Criticality               string // High, Middle or Low
	Budget, Period            time.Duration
	Level                     string
	Overruns                  int64
}

// Share is the part of the core that the budget takes.
func (s Server) Share() float64 {
	if s.Period <= 0 {
		return 0
	}
	return float64(s.Budget) / float64(s.Period)
}

// McKube is what chapters need to know of a McKube.
type McKube struct {
	Namespace, Name string
	Pod             string // spec.podname
	Ready           bool
	Reason          string // of condition Ready
}

// Server finds the container of a pod on a core of some node.
func (s State) Server(pod string) (node Node, core Core, server Server, ok bool) {
	for _, n := range s.Nodes {
		for _, c := range n.Cores {
			for _, srv := range c.Servers {
				if srv.Pod == pod {
					return n, c, srv, true
				}
			}
		}
	}
	return Node{}, Core{}, Server{}, false
}

func rtNodeOf(obj *unstructured.Unstructured) (*v1alpha1.RTNode, error) {
	n := &v1alpha1.RTNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, n); err != nil {
		return nil, fmt.Errorf("reading RTNode %s: %w", obj.GetName(), err)
	}
	return n, nil
}

func pressed(n *v1alpha1.RTNode) bool {
	return n != nil && meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.ConditionRTPressure)
}

func mckubeOf(obj *unstructured.Unstructured) (McKube, error) {
	m := &mcv1.McKube{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, m); err != nil {
		return McKube{}, fmt.Errorf("reading McKube %s: %w", obj.GetName(), err)
	}
	out := McKube{Namespace: m.Namespace, Name: m.Name, Pod: m.Spec.Podname}
	if ready := meta.FindStatusCondition(m.Status.Conditions, mcv1.ConditionReady); ready != nil {
		out.Ready, out.Reason = ready.Status == "True", ready.Reason
	}
	return out, nil
}

// coresOf joins what the agent reports with who was asked for.
func coresOf(n *v1alpha1.RTNode) []Core {
	if n == nil {
		return nil
	}
	type id struct {
		pod       types.UID
		container string
	}
	asked := make(map[id]v1alpha1.RTServer, len(n.Spec.Servers))
	for _, s := range n.Spec.Servers {
		asked[id{s.PodUID, s.Container}] = s
	}
	cores := make([]Core, 0, len(n.Status.Cores))
	for _, c := range n.Status.Cores {
		core := Core{ID: int(c.ID), Capacity: share(c.CapacityPpm), Promised: share(c.ReservedPpm)}
		for _, s := range n.Status.Servers {
			if slices.Contains(s.Cores, c.ID) {
				core.Servers = append(core.Servers, serverOf(s, asked[id{s.PodUID, s.Container}]))
			}
		}
		slices.SortStableFunc(core.Servers, func(a, b Server) int {
			return cmp.Or(cmp.Compare(rank(b.Criticality), rank(a.Criticality)), cmp.Compare(a.Pod, b.Pod))
		})
		cores = append(cores, core)
	}
	return cores
}

func serverOf(s v1alpha1.RTServerStatus, asked v1alpha1.RTServer) Server {
	return Server{
		Namespace: asked.Namespace, Pod: asked.Pod, Container: s.Container, Criticality: asked.Criticality,
		Budget: time.Duration(s.BudgetUs) * time.Microsecond, Period: time.Duration(s.PeriodUs) * time.Microsecond,
		Level: s.Level, Overruns: s.Overruns,
	}
}

func share(ppm int64) float64 { return float64(ppm) / 1e6 }

func rank(criticality string) int {
	return slices.Index([]string{string(mcv1.CriticalityLow), string(mcv1.CriticalityMiddle), string(mcv1.CriticalityHigh)}, criticality)
}
