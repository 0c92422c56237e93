// Package demo tells the story of a node's life on a local cluster, in chapters. Each chapter does one thing to the
// cluster and ends when its goal is seen in the API; a goal that is not seen before the chapter's deadline has failed.
package demo

import (
	"context"
	"embed"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// namespace is where the demo's workload runs.
const namespace = "demo"

// releaseLabel is what the drift chapter changes in a NodePool's template.
const releaseLabel = "demo.mckube.io/release"

// Pools of the demo.
const (
	general    = "general"
	careful    = "careful"
	shortLived = "short-lived"
)

// Chapter is one part of the story.
type Chapter struct {
	Title string
	Short string // for plots
	// Doing says what is done and what to look for.
	Doing string
	// Limit is the chapter's deadline, from its begin.
	Limit time.Duration
	// Act does it. What the goal compares with is kept in the memory.
	Act func(ctx context.Context, c client.Client, before observe.State, m *Memory) error
	// Goal looks at the cluster: whether the goal is reached, and in words what is found.
	Goal func(now View, m Memory) (reached bool, found string)
}

// View is what goals look at.
type View struct {
	observe.State
	Machines []observe.Machine // all that ever were
}

// Memory is what a chapter remembers of its begin.
type Memory struct {
	Begun  time.Time
	Want   int             // pods that should run in the end
	Nodes  int             // nodes of the chapter's pool
	Price  float64         // $/h of the chapter's pool
	Claims map[string]bool // NodeClaims of the chapter's pool
	// Where is the node of every real-time pod, by the pod's name, in chapters that must not move them.
	Where map[string]string
	// Budget is how many nodes of BudgetPool may be disrupted at once; 0 = the chapter is not about a budget.
	Budget     int
	BudgetPool string
}

// remember fills what every chapter wants to know of its pool at its begin.
func (m *Memory) remember(s observe.State, pool string) {
	m.Claims = map[string]bool{}
	for _, n := range s.Pool(pool) {
		m.Claims[n.Claim] = true
		m.Price += n.Price
	}
	m.Nodes = len(m.Claims)
}

// settled says that every wanted pod runs on a ready node and that nothing else is under way.
func (v View) settled(want int) bool {
	return v.Pending == 0 && v.Running == want && v.InPhase(observe.Ready) == len(v.Nodes) && v.podsOnReady()
}

func (v View) podsOnReady() bool {
	ready := map[string]bool{}
	for _, n := range v.Nodes {
		ready[n.Name] = n.Phase == observe.Ready
	}
	for _, p := range v.Pods {
		if !ready[p.Node] {
			return false
		}
	}
	return true
}

// left are the machines among the remembered ones that are gone, for a reason.
func (v View) left(m Memory, why ...string) []observe.Machine {
	var gone []observe.Machine
	for _, machine := range v.Machines {
		for _, w := range why {
			if m.Claims[machine.Claim] && !machine.Gone.IsZero() && machine.Why == w {
				gone = append(gone, machine)
			}
		}
	}
	return gone
}

func (v View) progress(want int) string {
	if v.settled(want) {
		return fmt.Sprintf("all %d pods run", want)
	}
	return fmt.Sprintf("%d of %d pods run, %d nodes of which %d are ready", v.Running, want, len(v.Nodes), v.InPhase(observe.Ready))
}

// manifest reads one of the demo's manifests.
func manifest(name string) ([]*unstructured.Unstructured, error) {
	data, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return nil, fmt.Errorf("reading manifest: %w", err)
	}
	return kube.Parse(name, data)
}

// apply applies one of the demo's manifests.
func apply(ctx context.Context, c client.Client, name string) error {
	objects, err := manifest(name)
	if err != nil {
		return err
	}
	return kube.Apply(ctx, c, objects...)
}

func patchPool(ctx context.Context, c client.Client, name, patch string) error {
	return kube.Patch(ctx, c, kube.Object("karpenter.sh/v1", "NodePool", "", name), patch)
}

func scale(ctx context.Context, c client.Client, deployment string, replicas int) error {
	return kube.Patch(ctx, c, kube.Object("apps/v1", "Deployment", namespace, deployment), fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// strike creates a SimulatedFault.
func strike(ctx context.Context, c client.Client, name, spec string) error {
	objects, err := kube.Parse(name, fmt.Appendf(nil, "apiVersion: mckube.io/v1alpha1\nkind: SimulatedFault\nmetadata: {name: %s}\nspec: %s\n", name, spec))
	if err != nil {
		return err
	}
	return kube.Apply(ctx, c, objects...)
}
