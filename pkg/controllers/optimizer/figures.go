package optimizer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/mainspring-rt/mainspring/pkg/allocation"
	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// figures are what the pods of a workload cost and draw.
type figures struct {
	pods           []*corev1.Pod // that are not over
	ready, waiting int32         // of them
	own, idle      allocation.Share
	node           string   // on which most of them run
	unpriced       []string // nodes whose price is not known
	defaulted      []string // nodes whose watts come from the default model
	shares         map[types.UID]allocation.Share
	most           int // pods on node
}

// node is a machine with its pods.
type node struct {
	allocation.Machine
	pods             []*corev1.Pod
	capacity         corev1.ResourceList
	priced, labelled bool
}

// readFigures reads the pods that a WorkloadOptimizer governs, and the nodes that they run on.
func readFigures(ctx context.Context, c client.Reader, m market, wo *kcloudv1alpha1.WorkloadOptimizer) (figures, error) {
	selector, err := selectorOf(wo)
	if err != nil {
		return figures{}, err
	}
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(wo.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return figures{}, fmt.Errorf("listing the pods: %w", err)
	}
	f := figures{shares: map[types.UID]allocation.Share{}}
	on := map[string][]*corev1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		if pod.IsTerminal(p) {
			continue
		}
		f.pods = append(f.pods, p)
		if isReady(p) {
			f.ready++
		}
		if p.Spec.NodeName == "" {
			f.waiting++
			continue
		}
		on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
	}
	for _, name := range slices.Sorted(maps.Keys(on)) {
		n, err := readNode(ctx, c, m, name)
		if apierrors.IsNotFound(err) {
			f.waiting += int32(len(on[name])) //nolint:gosec // far fewer pods
			continue                          // the node is gone, and its pods will be
		}
		if err != nil {
			return figures{}, err
		}
		f.add(name, n, on[name])
	}
	return f, nil
}

// validate says what in the spec the API server could not check.
func validate(wo *kcloudv1alpha1.WorkloadOptimizer) error {
	_, err := selectorOf(wo)
	if policy := wo.Spec.PlacementPolicy; policy != nil && err == nil {
		if errs := metav1validation.ValidateLabels(policy.NodeSelector, field.NewPath("spec", "placementPolicy", "nodeSelector")); len(errs) > 0 {
			return errs.ToAggregate()
		}
	}
	return err
}

func selectorOf(wo *kcloudv1alpha1.WorkloadOptimizer) (labels.Selector, error) {
	if wo.Spec.PodSelector == nil {
		return labels.SelectorFromSet(labels.Set{kcloudv1alpha1.LabelWorkloadOptimizer: wo.Name}), nil
	}
	s, err := metav1.LabelSelectorAsSelector(wo.Spec.PodSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.podSelector: %w", err)
	}
	return s, nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// readNode reads a node and its pods, its price from the market and its power from its labels.
func readNode(ctx context.Context, c client.Reader, m market, name string) (node, error) {
	n := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		return node{}, fmt.Errorf("reading node %s: %w", name, err)
	}
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.MatchingFields{"spec.nodeName": name}); err != nil {
		return node{}, fmt.Errorf("listing the pods of node %s: %w", name, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if !pod.IsTerminal(&list.Items[i]) {
			pods = append(pods, &list.Items[i])
		}
	}
	return newNode(n, pods, m), nil
}

// newNode takes the price from the market and the power from the labels.
func newNode(n *corev1.Node, pods []*corev1.Pod, m market) node {
	out := node{pods: pods, capacity: n.Status.Capacity}
	out.Allocatable = n.Status.Allocatable
	out.Price = m.priceOf(n.Labels, n.Annotations)
	out.priced = out.Price > 0
	if out.Power, out.labelled = powermodel.FromLabels(n.Labels); !out.labelled {
		out.Power = powermodel.Default(n.Status.Capacity)
	}
	return out
}

// requests are what each pod requests.
func (n node) requests() []corev1.ResourceList {
	requests := make([]corev1.ResourceList, len(n.pods))
	for i, p := range n.pods {
		requests[i] = requestsOf(p)
	}
	return requests
}

// add adds the shares that these pods of the node have.
func (f *figures) add(name string, n node, governed []*corev1.Pod) {
	shares, idle := n.Shares(n.requests())
	part, used := 0.0, 0.0
	own := sets.New(lo.Map(governed, func(p *corev1.Pod, _ int) types.UID { return p.UID })...)
	for i, p := range n.pods {
		used += shares[i].Part
		if own.Has(p.UID) {
			f.own = f.own.Plus(shares[i])
			f.shares[p.UID] = shares[i]
			part += shares[i].Part
		}
	}
	if used > 0 {
		f.idle = f.idle.Plus(idle.Times(part / used))
	}
	if !n.priced {
		f.unpriced = append(f.unpriced, name)
	}
	if !n.labelled {
		f.defaulted = append(f.defaulted, name)
	}
	if len(governed) > f.most {
		f.node, f.most = name, len(governed)
	}
}

func requestsOf(p *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}

// maxShapes bounds the work for one workload: each shape is compared with every instance type of every NodePool.
const maxShapes = 16

// shape is pods that ask for the same.
type shape struct {
	*corev1.Pod
	key            string
	count, waiting int
	own            allocation.Share // of those that run
	offers         []offer
	reason         string // why there is no offer
}

// shapesOf groups pods by what decides where they may run, the largest group first, and asks the market for each; false where
// there are more groups than are looked at.
func shapesOf(m market, f figures) ([]*shape, bool) {
	known := map[string]*shape{}
	for _, p := range f.pods {
		s := newShape(p)
		if known[s.key] == nil {
			known[s.key] = s
		}
		s = known[s.key]
		s.count++
		share, runs := f.shares[p.UID]
		if s.own = s.own.Plus(share); !runs {
			s.waiting++
		}
		if len(known) > maxShapes {
			return nil, false
		}
	}
	list := slices.SortedFunc(maps.Values(known), func(a, b *shape) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key))
	})
	for _, s := range list {
		s.offers, s.reason = m.offers(s.Pod)
	}
	return list, true
}

// newShape keeps of a pod what decides where it may run.
func newShape(p *corev1.Pod) *shape {
	asked := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: p.Spec.NodeSelector, Tolerations: p.Spec.Tolerations,
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requestsOf(p)}}},
	}}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		asked.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
		}}
	}
	return &shape{Pod: asked, key: keyOf(asked)}
}

// keyOf is the same for pods that ask for the same of their node. How long they tolerate a taint does not matter.
func keyOf(asked *corev1.Pod) string {
	tolerations := make([]string, 0, len(asked.Spec.Tolerations))
	for _, t := range asked.Spec.Tolerations {
		tolerations = append(tolerations, fmt.Sprintf("%q %q %q %q", t.Key, t.Operator, t.Value, t.Effect))
	}
	slices.Sort(tolerations)
	affinity := "" // generated String methods write it whole, and follow pointers
	if asked.Spec.Affinity != nil {
		affinity = asked.Spec.Affinity.NodeAffinity.String()
	}
	return fmt.Sprint(asked.Spec.NodeSelector, affinity, slices.Compact(tolerations), amountsOf(requestsOf(asked)))
}

// sum is what all pods of the shapes request together.
func sum(shapes []*shape) corev1.ResourceList {
	total := corev1.ResourceList{}
	for _, s := range shapes {
		for range s.count {
			total = resources.MergeInto(total, requestsOf(s.Pod))
		}
	}
	return total
}
