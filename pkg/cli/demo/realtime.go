package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
)

// realtime is the pool of machines with real-time cores.
const realtime = "realtime"

// Real-time pods of the demo, and the cores that the first ones prefer.
var (
	firstPods  = map[string]int{"vision": 1, "lidar": 1, "planner": 2, "recorder": 2, "steering": 3}
	laterPods  = []string{"press", "crane"}
	brakeCore  = 2
	brakePod   = "brake"
	victimPods = []string{"planner", "recorder"}
)

func onCores() Chapter {
	return Chapter{
		Title: "real-time pods on cores", Short: "cores",
		Doing: "Five pods of three criticalities arrive, each with a McKube: a budget of a core in every 10 ms. No machine has a real-time core for them. " +
			"Look for a machine of pool realtime, and for every container on the core it prefers, admitted with its highest budget.",
		Limit: 60 * time.Second,
		Act: func(ctx context.Context, c client.Client, _ observe.State, _ *Memory) error {
			return applyRealtime(ctx, c, "realtime.yaml")
		},
		Goal: func(v View, _ Memory) (bool, string) {
			there := 0
			for pod, core := range firstPods {
				if _, on, _, ok := v.Server(pod); ok && on.ID == core && v.ready(pod) {
					there++
				}
			}
			return there == len(firstPods), fmt.Sprintf("%d of %d containers have their budgets on the cores they prefer: %s", there, len(firstPods), v.coreWords())
		},
	}
}

func onPreferredCore() Chapter {
	return Chapter{
		Title: "a HIGH pod on a full core", Short: "brake",
		Doing: "Pod brake, of criticality High, prefers core 2, which is nearly full of lesser work. Look for one of them moving to another core of the machine, " +
			"nobody being evicted and no machine being opened; then for brake being raised when it overruns.",
		Limit: 60 * time.Second,
		Act: func(ctx context.Context, c client.Client, before observe.State, m *Memory) error {
			m.rememberCores(before)
			return applyRealtime(ctx, c, "brake.yaml")
		},
		Goal: func(v View, m Memory) (bool, string) {
			node, core, brake, ok := v.Server(brakePod)
			if !ok || core.ID != brakeCore {
				return false, fmt.Sprintf("%s is not on core %d yet: %s", brakePod, brakeCore, v.coreWords())
			}
			var moved []string
			for _, pod := range victimPods {
				if _, on, _, ok := v.Server(pod); ok && on.ID != brakeCore {
					moved = append(moved, fmt.Sprintf("%s to core %d", pod, on.ID))
				}
			}
			found := fmt.Sprintf("%s has core %d of %s at level %s after %d overrun; moved: %s; %s",
				brakePod, core.ID, node.Claim, brake.Level, brake.Overruns, orNobody(moved), v.coreWords())
			kept := v.kept(m)
			if kept != "" {
				found += "; " + kept
			}
			return len(moved) > 0 && kept == "" && brake.Level == "hi" && v.ready(brakePod) && len(v.Pool(realtime)) == m.Nodes, found
		},
	}
}

func onNewNode() Chapter {
	return Chapter{
		Title: "no core is left", Short: "new node",
		Doing: "Two pods of criticality High may need 51 % of a core each. The three cores have more than that left together, but none of them alone. " +
			"Look for a second machine of pool realtime, and for nobody being evicted.",
		Limit: 60 * time.Second,
		Act: func(ctx context.Context, c client.Client, before observe.State, m *Memory) error {
			m.rememberCores(before)
			return applyRealtime(ctx, c, "crane.yaml")
		},
		Goal: func(v View, m Memory) (bool, string) {
			there := 0
			for _, pod := range laterPods {
				if node, _, _, ok := v.Server(pod); ok && !m.Claims[node.Claim] && v.ready(pod) {
					there++
				}
			}
			found := fmt.Sprintf("%d of %d pods have cores of a new machine, %d machines in pool %s: %s", there, len(laterPods), len(v.Pool(realtime)), realtime, v.coreWords())
			kept := v.kept(m)
			if kept != "" {
				found += "; " + kept
			}
			return there == len(laterPods) && kept == "", found
		},
	}
}

// rememberCores remembers the pool's machines and where its real-time pods run.
func (m *Memory) rememberCores(s observe.State) {
	m.remember(s, realtime)
	m.Where = map[string]string{}
	for _, n := range s.Pool(realtime) {
		for _, c := range n.Cores {
			for _, srv := range c.Servers {
				m.Where[srv.Pod] = n.Name
			}
		}
	}
}

// kept says which of the remembered pods is not where it ran; empty when all are.
func (v View) kept(m Memory) string {
	for pod, was := range m.Where {
		if node, _, _, ok := v.Server(pod); !ok || node.Name != was {
			return pod + " is not on its machine any more"
		}
	}
	return ""
}

// ready says that the pod's McKube is.
func (v View) ready(pod string) bool {
	return slices.ContainsFunc(v.McKubes, func(m observe.McKube) bool { return m.Namespace == namespace && m.Pod == pod && m.Ready })
}

// coreWords are the cores of the pool: "core 1 77 %, core 2 77 %, core 3 31 % of realtime-a".
func (v View) coreWords() string {
	var nodes []string
	for _, n := range v.Pool(realtime) {
		var cores []string
		for _, c := range n.Cores {
			cores = append(cores, fmt.Sprintf("core %d %.0f %%", c.ID, 100*c.Promised))
		}
		if len(cores) > 0 {
			nodes = append(nodes, strings.Join(cores, ", ")+" of "+n.Claim)
		}
	}
	if len(nodes) == 0 {
		return "no core yet"
	}
	return strings.Join(nodes, "; ")
}

func orNobody(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

// templatesEvery is the pause between two looks for claim templates.
const templatesEvery = 100 * time.Millisecond

// applyRealtime applies a manifest: first the McKubes, and once the controller has prepared their claims, the pods. The other
// way round works too, but then a pod is scheduled before its core is known.
func applyRealtime(ctx context.Context, c client.Client, name string) error {
	objects, err := manifest(name)
	if err != nil {
		return err
	}
	var mckubes, rest []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == "McKube" {
			mckubes = append(mckubes, o)
		} else {
			rest = append(rest, o)
		}
	}
	if err := kube.Apply(ctx, c, mckubes...); err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, templatesEvery, true, func(ctx context.Context) (bool, error) { return prepared(ctx, c, mckubes) })
	if err != nil {
		return fmt.Errorf("waiting for the claim templates of the McKubes: %w", err)
	}
	return kube.Apply(ctx, c, rest...)
}

// prepared says that every McKube owns a ResourceClaimTemplate.
func prepared(ctx context.Context, c client.Client, mckubes []*unstructured.Unstructured) (bool, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("resource.k8s.io/v1")
	list.SetKind("ResourceClaimTemplateList")
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("listing claim templates: %w", err)
	}
	owners := map[string]bool{}
	for _, template := range list.Items {
		for _, owner := range template.GetOwnerReferences() {
			owners[owner.Name] = true
		}
	}
	return !slices.ContainsFunc(mckubes, func(m *unstructured.Unstructured) bool { return !owners[m.GetName()] }), nil
}
