package orchestration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Reasons for which an action waits, beside those of the rules.
const (
	// ReasonNodeBeingDisrupted: the node is being closed or replaced already. What expires for that is not tried the less often.
	ReasonNodeBeingDisrupted = "NodeBeingDisrupted"
	// ReasonManyBudgets: several PodDisruptionBudgets cover a pod, and then the API server refuses every eviction of it.
	ReasonManyBudgets = "SeveralPodDisruptionBudgets"
	// ReasonPoolBudgetInvalid: a disruption budget of the NodePool cannot be read, and allows nothing for as long as that is so.
	ReasonPoolBudgetInvalid = "NodePoolBudgetInvalid"
	// ReasonNoExecutor: nothing here does actions of the kind.
	ReasonNoExecutor = "NoExecutor"
)

// Reasons lists all for which an action may wait.
var Reasons = []string{
	rules.ReasonInUse, rules.ReasonTurn, rules.ReasonDisruptionBudget, rules.ReasonPoolBudget, rules.ReasonLimit,
	ReasonNodeBeingDisrupted, ReasonManyBudgets, ReasonPoolBudgetInvalid, ReasonNoExecutor,
}

// picture is everything that one round decides on.
type picture struct {
	objects map[string]*v1alpha1.RTAction
	// actions as the rules see them, with what PodDisruptionBudgets cover.
	actions []rules.Action
	// impossible are waiting actions that never can be done, and why.
	impossible map[string]string
	// allowed is what disruption budgets allow now.
	allowed map[rules.Key]int
	// most is what PodDisruptionBudgets allow with all their pods in good order.
	most map[rules.Key]int
	// vetoes are what else forbids actions for now.
	vetoes map[string]veto
	// nodes that were looked at, by their names.
	nodes map[string]nodeLook
}

// nodeLook is what was found of a node.
type nodeLook struct {
	gone bool
	// ending: it is there, and being deleted.
	ending    bool
	disrupted string
}

type veto struct{ reason, message string }

func (p picture) world(o Options) rules.World {
	return rules.World{
		Capacity: func(k rules.Key) int {
			if limit, ok := o.limit(k.Resource); ok {
				return limit
			}
			return p.allowed[k]
		},
		Most: func(k rules.Key) (int, bool) {
			most, known := p.most[k]
			return most, known
		},
		Veto: func(a rules.Action) (reason, message string) {
			v := p.vetoes[a.ID]
			return v.reason, v.message
		},
	}
}

// picture looks at the world around the actions. Pods come from the cache, what PodDisruptionBudgets allow from the API
// server: it is spent when a pod is evicted, and the cache may show the pod as gone before the budget as smaller.
func (q *Queue) picture(ctx context.Context, objects []*v1alpha1.RTAction) (picture, error) {
	p := picture{
		objects: map[string]*v1alpha1.RTAction{}, impossible: map[string]string{},
		allowed: map[rules.Key]int{}, most: map[rules.Key]int{}, vetoes: map[string]veto{}, nodes: map[string]nodeLook{},
	}
	pods := map[string][]*corev1.Pod{}
	for _, o := range objects {
		a, err := record.Read(o)
		p.objects[a.ID] = o
		if err != nil && a.Phase == rules.Waiting {
			p.impossible[a.ID] = "It is not valid: " + err.Error()
			continue
		}
		if a.Phase == rules.Waiting && q.ledger.doubted(o.Name) {
			a.Phase = rules.Running // it may be: no other action gets what it uses
		}
		if !a.Phase.Over() {
			if pods[a.ID], err = q.survey(ctx, &p, o, a); err != nil {
				return p, err
			}
			if p.impossible[a.ID] != "" {
				continue
			}
		}
		p.actions = append(p.actions, a)
	}
	if err := q.charge(ctx, &p, pods); err != nil {
		return p, err
	}
	return p, q.pools(ctx, &p)
}

// survey looks at the pods and nodes of an action, and returns the pods that are still there.
func (q *Queue) survey(ctx context.Context, p *picture, o *v1alpha1.RTAction, a rules.Action) ([]*corev1.Pod, error) {
	pods, err := q.pods(ctx, o)
	if err != nil || a.Phase != rules.Waiting {
		return pods, err
	}
	if _, ok := q.executors[a.Kind]; !ok {
		p.vetoes[a.ID] = veto{ReasonNoExecutor, fmt.Sprintf("nothing here does actions of kind %s", a.Kind)}
	}
	for _, node := range []string{o.Spec.Node, o.Spec.TargetNode} {
		if node == "" {
			continue
		}
		n, err := q.node(ctx, p, node)
		if err != nil {
			return nil, err
		}
		if n.disrupted != "" && !bears(o.Spec, node) {
			p.vetoes[a.ID] = veto{ReasonNodeBeingDisrupted, fmt.Sprintf("node %s %s", node, n.disrupted)}
		}
		if n.gone || n.ending && !leaves(o.Spec, node) {
			p.impossible[a.ID] = fmt.Sprintf("Node %s is gone", node)
		}
	}
	if len(o.Spec.Pods) > 0 && len(pods) == 0 {
		p.impossible[a.ID], err = q.allGone(ctx, o)
	}
	return pods, err
}

// bears tells whether an action may go on at a node that is being closed or replaced: it brings no pod to the node, and evicts
// no pod for what is closed anyway. Until the replacement serves, which may take minutes, it helps pods under pressure there.
func bears(s v1alpha1.RTActionSpec, node string) bool {
	switch rules.Kind(s.Kind) {
	case rules.Rearrange, rules.OpenNode:
		return true
	case rules.Migrate:
		return node == s.Node
	}
	return false
}

// leaves tells whether a migration takes a pod off a node because that is being closed, or its pods are evicted: closing
// it waits for just that.
func leaves(s v1alpha1.RTActionSpec, node string) bool {
	if rules.Kind(s.Kind) != rules.Migrate || node != s.Node {
		return false
	}
	switch v1alpha1.MigrationTrigger(s.Reason) {
	case v1alpha1.TriggerEviction, v1alpha1.TriggerDrain, v1alpha1.TriggerInterruption, v1alpha1.TriggerRepair,
		v1alpha1.TriggerConsolidation, v1alpha1.TriggerDrift, v1alpha1.TriggerExpiration:
		return true
	}
	return false
}

// node is looked at once in a round.
func (q *Queue) node(ctx context.Context, p *picture, name string) (nodeLook, error) {
	if n, ok := p.nodes[name]; ok {
		return n, nil
	}
	gone, err := q.gone(ctx, &corev1.Node{}, types.NamespacedName{Name: name}, "")
	look := nodeLook{gone: gone, disrupted: q.Nodes.Disrupted(name)}
	if gone && err == nil {
		left := &corev1.Node{}
		err = client.IgnoreNotFound(q.Reader.Get(ctx, types.NamespacedName{Name: name}, left))
		look.ending = left.DeletionTimestamp != nil
		look.gone = !look.ending
	}
	p.nodes[name] = look
	return p.nodes[name], err
}

// pods of an action that the cache has, and that are not ending.
func (q *Queue) pods(ctx context.Context, o *v1alpha1.RTAction) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for _, named := range o.Spec.Pods {
		pod := &corev1.Pod{}
		err := q.Client.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", named.Namespace, named.Name, err)
		}
		if err == nil && pod.UID == named.UID && pod.DeletionTimestamp == nil {
			out = append(out, pod)
		}
	}
	return out, nil
}

// allGone says so when none of the pods of an action is there any longer, which the API server must confirm.
func (q *Queue) allGone(ctx context.Context, o *v1alpha1.RTAction) (string, error) {
	for _, p := range o.Spec.Pods {
		gone, err := q.gone(ctx, &corev1.Pod{}, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID)
		if err != nil || !gone {
			return "", err
		}
	}
	return "Its pods are gone", nil
}

// gone tells whether an object is there no longer, or another one of its name is. The cache may be behind, so only the
// API server may say so.
func (q *Queue) gone(ctx context.Context, into client.Object, key types.NamespacedName, uid types.UID) (bool, error) {
	for _, from := range []client.Reader{q.Client, q.Reader} {
		err := from.Get(ctx, key, into)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading %T %s: %w", into, key, err)
		}
		if err == nil && (uid == "" || into.GetUID() == uid) && into.GetDeletionTimestamp() == nil {
			return false, nil
		}
	}
	return true, nil
}

// charge adds to the actions what PodDisruptionBudgets are charged for their pods.
func (q *Queue) charge(ctx context.Context, p *picture, pods map[string][]*corev1.Pod) error {
	budgets := map[string][]policyv1.PodDisruptionBudget{}
	for i := range p.actions {
		a := &p.actions[i]
		if a.Kind == rules.Rearrange || a.Kind == rules.OpenNode || p.objects[a.ID].Spec.Beside {
			continue // nothing ends, or not before something else is there
		}
		charged := map[rules.Key]int{}
		for _, pod := range pods[a.ID] {
			list, ok := budgets[pod.Namespace]
			if !ok {
				var err error
				if list, err = q.budgets(ctx, pod.Namespace); err != nil {
					return err
				}
				budgets[pod.Namespace] = list
			}
			covering := pdb.Covering(list, pod)
			if len(covering) > 1 && a.Phase == rules.Waiting {
				p.vetoes[a.ID] = veto{ReasonManyBudgets, fmt.Sprintf("PodDisruptionBudgets %s cover pod %s/%s, and the API server evicts no pod that several cover", names(covering), pod.Namespace, pod.Name)}
			}
			for _, b := range covering {
				key := rules.Key{Resource: rules.PodBudget, Name: b.Namespace + "/" + b.Name}
				p.allowed[key], p.most[key] = pdb.Allowed(b), pdb.Most(b)
				if pdb.Charges(b, pod) && !record.Spent(p.objects[a.ID], key) {
					charged[key]++
				}
			}
		}
		for _, key := range slices.SortedFunc(maps.Keys(charged), func(a, b rules.Key) int { return strings.Compare(a.Name, b.Name) }) {
			a.Uses = append(a.Uses, rules.Use{Key: key, Amount: charged[key]})
		}
	}
	return nil
}

// budgets are the PodDisruptionBudgets of a namespace as the API server has them.
func (q *Queue) budgets(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	list := &policyv1.PodDisruptionBudgetList{}
	if err := q.Reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

func names(budgets []*policyv1.PodDisruptionBudget) string {
	var out []string
	for _, b := range budgets {
		out = append(out, b.Name)
	}
	return strings.Join(out, ", ")
}

// pools asks what the budgets of NodePools allow, if an action is charged to one.
func (q *Queue) pools(ctx context.Context, p *picture) error {
	charged := slices.ContainsFunc(p.actions, func(a rules.Action) bool {
		return a.Phase == rules.Waiting && slices.ContainsFunc(a.Uses, func(u rules.Use) bool { return u.Resource == rules.PoolBudget })
	})
	if !charged {
		return nil
	}
	allowed, err := q.Nodes.Allowed(ctx)
	if err != nil {
		return fmt.Errorf("asking for disruption budgets of NodePools: %w", err)
	}
	for pool, allowance := range allowed {
		p.allowed[rules.Key{Resource: rules.PoolBudget, Name: pool}] = allowance.Nodes
	}
	p.vetoInvalid(allowed)
	p.uncharge()
	return nil
}

// vetoInvalid names the budget that cannot be read to the actions that are charged to it: no time will come at which it allows them.
func (p *picture) vetoInvalid(allowed map[string]PoolAllowance) {
	for i := range p.actions {
		a := &p.actions[i]
		invalid := func(u rules.Use) bool { return u.Resource == rules.PoolBudget && allowed[u.Name].Invalid != "" }
		at := slices.IndexFunc(a.Uses, invalid)
		if _, vetoed := p.vetoes[a.ID]; at < 0 || vetoed || a.Phase != rules.Waiting {
			continue
		}
		pool := a.Uses[at].Name
		p.vetoes[a.ID] = veto{ReasonPoolBudgetInvalid, fmt.Sprintf("NodePool %s: %s", pool, allowed[pool].Invalid)}
		a.Uses = slices.DeleteFunc(a.Uses, invalid) // or it would wait for a place in the budget
	}
}

// uncharge takes the NodePool's budget off actions that wait for a node which is going already, and which has the place there.
// Such an action waits for the node then, and the controller that closes the node may give way. None of them begins before the
// node is open again, and is charged again by then.
func (p *picture) uncharge() {
	for i := range p.actions {
		a := &p.actions[i]
		if p.vetoes[a.ID].reason == ReasonNodeBeingDisrupted {
			a.Uses = slices.DeleteFunc(a.Uses, func(u rules.Use) bool { return u.Resource == rules.PoolBudget && p.allowed[u.Key] == 0 })
		}
	}
}

// unneeded is why an action that is not over is no longer wanted: it was deleted, or waits, and the pod that it is for is gone.
// Empty: it is wanted.
func (q *Queue) unneeded(ctx context.Context, o *v1alpha1.RTAction) (string, error) {
	if !o.DeletionTimestamp.IsZero() && !o.Status.Unwanted {
		return "It was deleted", nil
	}
	b := o.Spec.Beneficiary
	if phaseOf(o) != rules.Waiting || b.Kind != "Pod" || b.UID == "" {
		return "", nil
	}
	gone, err := q.gone(ctx, &corev1.Pod{}, types.NamespacedName{Namespace: b.Namespace, Name: b.Name}, b.UID)
	if err != nil || !gone {
		return "", err
	}
	return fmt.Sprintf("Pod %s/%s, for which it was to be done, is gone", b.Namespace, b.Name), nil
}
