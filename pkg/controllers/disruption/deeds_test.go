package disruption_test

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// submit has a ReplaceNode action of a node run.
func (w *world) submit(name, node string) {
	a := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Spec = v1alpha1.RTActionSpec{
		Kind: "ReplaceNode", Reason: "RTPressure", Cause: "pressure/x/1", Node: node, NodePool: w.pool.Name, Attempt: 1,
		Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Node", Name: node, Criticality: "High"}, Timeout: metav1.Duration{Duration: 10 * time.Minute},
	}
	a.Spec.Since = ptr.To(metav1.NowMicro())
	a.Status.Phase = "Running"
	w.actions[name] = a
}

// begunBy says of an action that is running from now on how long it may wait until it begins.
func (w *world) begunBy(name string, patience time.Duration) {
	o := w.actions[name]
	o.Spec.Since = ptr.To(metav1.NewMicroTime(w.clock.Now().Add(-time.Minute)))
	o.Spec.StartBy = ptr.To(metav1.NewMicroTime(o.Spec.Since.Add(patience)))
	o.Status.PhaseTime = o.Spec.Since
}

// withdraw says that the controller does not want an action any longer.
func (w *world) withdraw(name string) { w.actions[name].Status.Phase = "RollingBack" }

// entered says that an action has come into its phase just now.
func (w *world) entered(name string) {
	w.actions[name].Status.PhaseTime = ptr.To(metav1.NewMicroTime(w.clock.Now()))
}

// try takes a step of an action, of which nothing is stored.
func (w *world) try(name string) error {
	w.Helper()
	_, _, err := w.stepOf(w.actions[name])
	return err
}

// stepOf takes a step, and returns what it came to and what is to be kept.
func (w *world) stepOf(o *v1alpha1.RTAction) (rules.Result, map[string]string, error) {
	w.Helper()
	action, err := record.Read(o)
	w.must(err)
	progress := map[string]string{}
	for key, value := range o.Status.Progress {
		progress[key] = value
	}
	result, err := w.loop.Executor().Step(w.ctx, orchestration.Task{Action: action, Object: o.DeepCopy(), Progress: progress})
	return result, progress, err
}

// step takes one of an action and stores what came of it, as the orchestration queue does.
func (w *world) step(name string) rules.Result {
	w.Helper()
	o := w.actions[name]
	result, progress, err := w.stepOf(o)
	if w.died() {
		return rules.Result{}
	}
	w.must(err)
	o.Status.Progress = progress
	switch {
	case result.Outcome != "":
		o.Status.Phase = v1alpha1.ActionPhase(result.Outcome)
	case result.Undo:
		o.Status.Phase = "RollingBack"
	}
	w.sync()
	return result
}

// carry has Karpenter's queue go on with the command for a node.
func (w *world) carry(node string) {
	w.Helper()
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: node}, claim))
	_, err := w.queue.Reconcile(w.ctx, claim)
	if w.died() {
		return
	}
	w.must(err)
	w.sync()
}

// opened are the NodeClaims that the actions' nodes are replaced by.
func (w *world) opened() (out []string) {
	w.Helper()
	list := &karpv1.NodeClaimList{}
	w.must(w.client.List(w.ctx, list))
	for _, c := range list.Items {
		if c.Annotations[v1alpha1.AnnotationAction] != "" && c.DeletionTimestamp == nil {
			out = append(out, c.Name)
		}
	}
	return out
}

// live is a node as the API server has it.
func (w *world) live(name string) *corev1.Node {
	w.Helper()
	node := &corev1.Node{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, node))
	return node
}

// candidate is a node that Karpenter may close.
func (w *world) candidate(name string) *karpdisruption.Candidate {
	w.Helper()
	for n := range w.cluster.Nodes() {
		if n.Name() == name {
			return &karpdisruption.Candidate{StateNode: n.DeepCopy(), NodePool: w.pool}
		}
	}
	w.Fatalf("Karpenter does not know node %s", name)
	return nil
}

// expectUntouched expects a node to serve as if nothing had been tried.
func (w *world) expectUntouched(name string) {
	w.Helper()
	node, claim := &corev1.Node{}, &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, node))
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim))
	if tainted(node) {
		w.Errorf("node %s is left tainted", name)
	}
	if claim.DeletionTimestamp != nil || claim.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason).IsTrue() {
		w.Errorf("NodeClaim %s is left disrupted", name)
	}
	for n := range w.cluster.Nodes() {
		if n.Name() == name && (n.MarkedForDeletion() || w.queue.HasAny(n.ProviderID())) {
			w.Errorf("Karpenter still means to close node %s", name)
		}
	}
}

func tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&karpv1.DisruptedNoScheduleTaint) })
}

// disrupted are the nodes that Karpenter's queue is closing.
func (w *world) disrupted() (out []string) {
	for _, command := range w.queue.GetCommands() {
		out = append(out, command.SourceNodeNames()...)
	}
	slices.Sort(out)
	return out
}

func (w *world) expectMessage(r rules.Result, want string) {
	w.Helper()
	if !strings.Contains(r.Message, want) {
		w.Errorf("it says %q, want %q", r.Message, want)
	}
}

// clean leaves the API server to the next test.
func (w *world) clean() {
	ctx := context.WithoutCancel(w.ctx)
	for _, list := range []client.ObjectList{&resourcev1.ResourceClaimList{}, &resourcev1.ResourceSliceList{}, &resourcev1.DeviceClassList{}, &corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}, &karpv1.NodePoolList{}} {
		w.must(w.client.List(ctx, list))
		w.must(eachItem(list, func(o client.Object) error {
			if len(o.GetFinalizers()) > 0 {
				o.SetFinalizers(nil)
				if err := w.client.Update(ctx, o); err != nil {
					return client.IgnoreNotFound(err)
				}
			}
			return client.IgnoreNotFound(w.client.Delete(ctx, o, client.GracePeriodSeconds(0)))
		}))
	}
}

func eachItem(list client.ObjectList, f func(client.Object) error) error {
	return meta.EachListItem(list, func(o runtime.Object) error { return f(o.(client.Object)) })
}

func labels(values map[string]string) scheduling.Requirements {
	return scheduling.NewLabelRequirements(values)
}
