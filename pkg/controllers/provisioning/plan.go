package provisioning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	knowledge "github.com/mainspring-rt/mainspring/pkg/cloudprovider"
)

// plan is the node to open.
type plan struct {
	pool  *karpv1.NodePool
	claim *scheduling.NodeClaim
	// price of the cheapest machine for it, in USD per hour.
	price float64
}

func (p plan) words() string {
	return fmt.Sprintf("NodePool %s, one of %d kinds of machine, from $%g per hour", p.pool.Name, len(p.claim.InstanceTypeOptions), p.price)
}

// plan finds the cheapest node for the pods of an action, of the NodePools with the highest weight that have any.
// refusal is why there is none. Whether nodes that are there would do is for whoever asks to know: what has room for a pod
// may be as crowded as where it is.
func (o *opener) plan(ctx context.Context, spec v1alpha1.RTActionSpec) (best plan, refusal string, err error) {
	pods, err := o.pods(ctx, spec)
	switch {
	case err != nil:
		return plan{}, "", err
	case len(pods) == 0:
		return plan{}, "none of its pods needs a node any longer", nil
	}
	if realtime, err := o.realtime(pods); err != nil || !realtime {
		return plan{}, "none of its pods has a real-time container", err
	}
	pools, err := o.pools(ctx, spec.NodePool)
	if err != nil {
		return plan{}, "", err
	}
	var refusals []string
	for _, pool := range pools {
		if best.pool != nil && ptr.Deref(pool.Spec.Weight, 0) < ptr.Deref(best.pool.Spec.Weight, 0) {
			break
		}
		next, why, err := o.simulate(ctx, pool, pods)
		switch {
		case err != nil:
			return plan{}, "", err
		case why != "":
			refusals = append(refusals, fmt.Sprintf("NodePool %s: %s", pool.Name, why))
		case best.pool == nil || next.price < best.price:
			best = next
		}
	}
	if best.pool == nil {
		return plan{}, "no node can be opened" + because(strings.Join(refusals, "; "), "no NodePool"+named(spec.NodePool)+" is ready"), nil
	}
	return best, "", nil
}

func named(pool string) string {
	if pool == "" {
		return ""
	}
	return " " + pool
}

// pods of an action that are still where it was to take them from, or have no node.
func (o *opener) pods(ctx context.Context, spec v1alpha1.RTActionSpec) ([]*corev1.Pod, error) {
	wanted := spec.Pods
	if b := spec.Beneficiary; len(wanted) == 0 && b.Kind == "Pod" {
		wanted = []v1alpha1.ActionPod{{Namespace: b.Namespace, Name: b.Name, UID: b.UID}}
	}
	var out []*corev1.Pod
	for _, p := range wanted {
		pod := &corev1.Pod{}
		err := o.Client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
		if err == nil && pod.UID == p.UID && !ended && (pod.Spec.NodeName == "" || pod.Spec.NodeName == spec.Node) {
			out = append(out, pod)
		}
	}
	return out, nil
}

// realtime tells whether any of the pods has a real-time container. What is not known of a pod must not pass for none.
func (o *opener) realtime(pods []*corev1.Pod) (any bool, err error) {
	snapshot := o.Store.Snapshot()
	for _, pod := range pods {
		view, ok := snapshot.Pod(pod.UID)
		if !ok {
			return false, fmt.Errorf("looking up pod %s/%s: it is not known yet", pod.Namespace, pod.Name)
		}
		any = any || len(view.Governed) > 0
	}
	return any, nil
}

// pools that may open nodes, those with the highest weight first.
func (o *opener) pools(ctx context.Context, only string) ([]*karpv1.NodePool, error) {
	list, err := nodepoolutils.ListManaged(ctx, o.Client, o.Provider)
	if err != nil {
		return nil, fmt.Errorf("listing NodePools: %w", err)
	}
	list = slices.DeleteFunc(list, func(p *karpv1.NodePool) bool {
		return only != "" && p.Name != only || !p.DeletionTimestamp.IsZero() || nodepoolutils.IsStatic(p) || !p.StatusConditions().IsTrue(status.ConditionReady)
	})
	slices.SortFunc(list, func(a, b *karpv1.NodePool) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.Spec.Weight, 0), ptr.Deref(a.Spec.Weight, 0)), strings.Compare(a.Name, b.Name))
	})
	return list, nil
}

// simulate has Karpenter place the pods on a new node of a NodePool.
func (o *opener) simulate(ctx context.Context, pool *karpv1.NodePool, pods []*corev1.Pod) (p plan, why string, err error) {
	machines, why, err := o.machines(ctx, pool, pods)
	if why != "" || err != nil {
		return plan{}, why, err
	}
	var opts []scheduling.Options
	if options.FromContext(ctx).PreferencePolicy == options.PreferencePolicyIgnore {
		opts = append(opts, scheduling.IgnorePreferences)
	}
	opts = append(opts, scheduling.MinValuesPolicy(options.FromContext(ctx).MinValuesPolicy))
	nodes := o.Cluster.DeepCopyNodes().Active()
	var there []string
	for _, n := range nodes {
		there = append(there, n.HostName())
	}
	pods = shapes(pods, pool.Name, machines, there)
	moving := sets.New[types.UID]()
	for _, pod := range pods {
		moving.Insert(pod.UID)
	}
	quiet := log.IntoContext(ctx, logging.NopLogger)
	scheduler, err := o.Provisioner.NewScheduler(quiet, pods, nodes, moving, opts...)
	if err != nil {
		return plan{}, "", fmt.Errorf("simulating a node of NodePool %s: %w", pool.Name, err)
	}
	results, err := scheduler.Solve(quiet, pods)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return plan{}, "", fmt.Errorf("simulating a node of NodePool %s: %w", pool.Name, err)
	}
	return verdict(pool, pods, results.TruncateInstanceTypes(quiet, scheduling.MaxInstanceTypes))
}

// verdict reads what came of a simulation.
func verdict(pool *karpv1.NodePool, pods []*corev1.Pod, results scheduling.Results) (p plan, why string, err error) {
	for _, pod := range pods {
		if failed := results.PodErrors[pod]; failed != nil {
			return plan{}, fmt.Sprintf("pod %s/%s: %v", pod.Namespace, pod.Name, failed), nil
		}
	}
	if n := len(results.NewNodeClaims); n != 1 {
		return plan{}, fmt.Sprintf("its %d pods would need %d nodes", len(pods), n), nil
	}
	p = plan{pool: pool, claim: results.NewNodeClaims[0], price: math.Inf(1)}
	for _, it := range p.claim.InstanceTypeOptions {
		if offerings := it.Offerings.Launchable().Compatible(p.claim.Requirements); len(offerings) > 0 {
			p.price = min(p.price, offerings.Cheapest().Price)
		}
	}
	if math.IsInf(p.price, 1) {
		return plan{}, "no machine is to be had", nil
	}
	return p, "", nil
}

// machines of a NodePool whose cores take all pods at once, by the test that will judge them there.
func (o *opener) machines(ctx context.Context, pool *karpv1.NodePool, pods []*corev1.Pod) (names []string, why string, err error) {
	list, err := o.Provider.GetInstanceTypes(ctx, pool)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, "", fmt.Errorf("asking for the instance types of NodePool %s: %w", pool.Name, err)
	case err != nil: // one NodePool that is not in order keeps none of the others back
		return nil, fmt.Sprintf("its machines are not known: %v", err), nil
	}
	var uids []types.UID
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	snapshot, asked, kinds := o.Store.Snapshot(), requirements.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...), 0
	for _, it := range list {
		if it.Requirements.Intersects(asked) != nil {
			continue // the NodePool opens none of these
		}
		kinds++
		cores, err := knowledge.CoresOf(it)
		if err != nil {
			return nil, "", err
		}
		if len(snapshot.FitsNew(cores, uids)) == 0 {
			names = append(names, it.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Sprintf("none of its %d kinds of machine has cores for the pods together", kinds), nil
	}
	return names, "", nil
}

// shapes are the pods as if they were pending, for new nodes of a NodePool that are one of the machines. What they ask for
// themselves, maybe another NodePool, stays.
func shapes(pods []*corev1.Pod, pool string, machines, there []string) []*corev1.Pod {
	terms := []corev1.NodeSelectorRequirement{
		{Key: karpv1.NodePoolLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{pool}},
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: machines},
	}
	if len(there) > 0 {
		terms = append(terms, corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: there})
	}
	out := make([]*corev1.Pod, len(pods))
	for i, pod := range pods {
		shape := pod.DeepCopy()
		shape.Spec.NodeName = ""
		require(&shape.Spec, terms)
		out[i] = shape
	}
	return out
}

// require adds node affinity to what a pod requires in any case.
func require(spec *corev1.PodSpec, terms []corev1.NodeSelectorRequirement) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	}
	for i := range required.NodeSelectorTerms {
		required.NodeSelectorTerms[i].MatchExpressions = append(required.NodeSelectorTerms[i].MatchExpressions, terms...)
	}
}
