package migration_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// house is an owner that bears no copies beside its pod. It makes that again as soon as there is none, if the API server lets it.
type house struct {
	*town
	by metav1.OwnerReference
	// pod as it makes it, and whose name it keeps.
	pod   *corev1.Pod
	named bool
	// refused is how often the API server did not let it.
	refused int
	// absent: its pod does not end, so that it makes none of its name.
	absent bool
	// broken: the runtime makes no containers of archives. none: it wants no pod.
	broken, none bool
}

// guarded installs, once, what keeps owners from making pods whose state is on its way.
var guarded sync.Once

func (w *town) guard() {
	w.Helper()
	guarded.Do(func() {
		policy, binding, err := charts.Heirs()
		w.must(err)
		w.must(client.IgnoreAlreadyExists(w.api.Create(w.Context(), policy)))
		w.must(client.IgnoreAlreadyExists(w.api.Create(w.Context(), binding)))
		w.enforce(admissionv1.Deny)
	})
}

// keeping stores, as for a PodMigration "any", that an owner is kept from making pod rt-9 in the place of one of UID u1.
func (w *town) keeping(kind string, owner types.UID, index string) (*corev1.PodTemplate, metav1.OwnerReference) {
	w.Helper()
	by := metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: "house", UID: owner, Controller: ptr.To(true)}
	if kind == "Job" {
		by.APIVersion = batchv1.SchemeGroupVersion.String()
	}
	kept := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "kept-" + string(owner), Labels: map[string]string{"mckube.io/keeps-owner": "true"}, Annotations: map[string]string{"mckube.io/keeps-owner": "any"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Name: "rt-9", Annotations: map[string]string{mcv1.AnnotationReplaces: "u1"}, OwnerReferences: []metav1.OwnerReference{by}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}},
		},
	}
	if index != "" {
		kept.Template.Annotations[batchv1.JobCompletionIndexAnnotation] = index
	}
	w.must(w.api.Create(w.Context(), kept))
	return kept, by
}

// becomes waits until the API server keeps an owner from creating that pod, or does no longer. The API server sees policies in its own
// time, which is longer than the seconds that a test plays.
func (w *town) becomes(by metav1.OwnerReference, kept bool) {
	w.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err := w.tries(by, ""); (err != nil) == kept {
			return
		}
	}
	w.Fatalf("it never came to pass that owners are kept from making pods: %t", kept)
}

// house has the town's only pod owned by a StatefulSet, a Job, an Indexed Job, one that counts the failures of each index (a Job by
// index), or a strict Job, which fails when a container cannot be restored.
func (w *town) house(kind string) *house {
	w.Helper()
	w.guard()
	bare(w)
	w.able()
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "rt"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "app", Image: "none"}}},
	}
	var owner client.Object
	index := map[string]string{}
	kinds := schema.GroupVersion{Group: "apps", Version: "v1"}
	if kind == "StatefulSet" {
		template.Spec.RestartPolicy = corev1.RestartPolicyAlways
		owner = &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template, Ordinals: &appsv1.StatefulSetOrdinals{Start: 1}}}
	} else {
		job := &batchv1.Job{Spec: batchv1.JobSpec{Template: template}}
		if kind == "Job by index" {
			job.Spec.BackoffLimitPerIndex, kind = ptr.To[int32](1), "Indexed Job"
		}
		if kind == "strict Job" {
			job.Spec.PodFailurePolicy, kind = byRules(onDisruption(batchv1.PodFailurePolicyActionIgnore), onCodes(batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyOnExitCodesOpIn, 128)).PodFailurePolicy, "Job"
		}
		if kind == "Indexed Job" {
			job.Spec.CompletionMode, job.Spec.Completions = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](2)
			index = map[string]string{batchv1.JobCompletionIndexAnnotation: "1"}
			kind = "Job"
		}
		kinds.Group, owner = "batch", job
	}
	owner.SetNamespace(w.namespace)
	owner.SetName("house")
	w.must(w.api.Create(w.Context(), owner))
	w.Cleanup(func() {
		apiserver.Empty(w, w.api, &appsv1.StatefulSetList{}, &batchv1.JobList{}, &corev1.PodTemplateList{})
	})
	h := &house{town: w, by: *metav1.NewControllerRef(owner, kinds.WithKind(kind)), named: kind == "StatefulSet"}
	p := w.pods()[0]
	p.OwnerReferences = []metav1.OwnerReference{h.by}
	maps.Copy(p.Annotations, index)
	w.must(w.api.Update(w.Context(), &p))
	h.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Labels: p.Labels, Annotations: index, OwnerReferences: p.OwnerReferences}, Spec: *p.Spec.DeepCopy()}
	h.pod.Spec.NodeName = ""
	w.late = h.live
	return h
}

// live plays the owner, and the kubelet of the target where that is broken.
func (h *house) live() {
	h.Helper()
	there := false
	for _, p := range h.pods() {
		if p.DeletionTimestamp != nil {
			h.finishDeletion(&p)
			continue
		}
		there = there || metav1.GetControllerOf(&p) != nil && metav1.GetControllerOf(&p).UID == h.by.UID && p.Annotations[batchv1.JobCompletionIndexAnnotation] == h.pod.Annotations[batchv1.JobCompletionIndexAnnotation]
		if h.broken && p.Annotations[mcv1.AnnotationReplaces] != "" && p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "criu failed"}}}}
			h.must(h.api.Status().Update(h.Context(), &p))
		}
	}
	if there || h.none {
		return
	}
	p := h.pod.DeepCopy()
	p.Name = "rt-1"
	if !h.named {
		h.made++
		p.Name = fmt.Sprintf("rt-%d", h.made)
	}
	switch err := h.api.Create(h.Context(), p); {
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "with its state"):
		h.refused++
	case h.absent && apierrors.IsAlreadyExists(err):
	default:
		h.must(err)
		h.unready = false
		h.bind(p, "b", 0)
	}
}

// expectNothingLeft expects that nothing is stored any longer.
func (h *house) expectNothingLeft() {
	h.Helper()
	list := &corev1.PodTemplateList{}
	h.must(h.api.List(context.WithoutCancel(h.Context()), list, client.InNamespace(h.namespace)))
	if len(list.Items) > 0 {
		h.Errorf("%d PodTemplates are left", len(list.Items))
	}
}

// A StatefulSet's pod, and a Job's, keep their names and their state; the owner makes none meanwhile. What cannot be restored begins
// anew, and the status says so.
func TestHeirs(t *testing.T) {
	t.Parallel()
	of := func(kind string, change ...func(*house)) func(*town) {
		return func(w *town) {
			h := w.house(kind)
			for _, f := range change {
				f(h)
			}
			w.Cleanup(h.expectNothingLeft)
		}
	}
	set, cold := of("StatefulSet"), func(h *house) { h.agents.cold = true }
	broken := func(h *house) { h.broken, h.unready = true, true }
	forbid := func(w *town) { w.budget() }
	for _, j := range []journey{
		{name: "set", town: set, phase: "Succeeded", says: "runs on node", places: "b", deaths: true, since: alike},
		{name: "job", town: of("Job"), phase: "Succeeded", says: "runs on node", places: "b"},
		{name: "begins-anew", town: of("StatefulSet", cold), phase: "SucceededWithoutState", says: "its state could not come along: the time is over: pod", places: "b"},
		{name: "cannot-be-made", town: of("Job", broken), phase: "SucceededWithoutState", says: "CreateContainerError: criu failed; pod", places: "b"},
		{name: "checkpoint-fails", town: of("Job", func(h *house) { h.agents.fails = v1alpha1.StageCheckpoint }), phase: "RolledBack", says: "it went wrong", places: "a"},
		{name: "transfer-fails", town: of("StatefulSet", func(h *house) { h.agents.fails = v1alpha1.StageTransfer }), phase: "RolledBack", says: "it went wrong", places: "a"},
		{name: "lost-late", town: of("StatefulSet", func(h *house) { h.agents.fails = v1alpha1.StageHandOver }), phase: "SucceededWithoutState", says: "it went wrong", places: "b", deaths: true, since: 23},
		{name: "aborted", town: set, during: at("Checkpointing", abort), phase: "Aborted", says: "stays on node", places: "a"},
		{name: "aborted-late", town: set, during: at("Restoring", abort), phase: "Succeeded", places: "b"},
		{name: "nobody-was-there", town: set, during: onceEvicted(func(w *town) { w.clock.Step(10 * time.Minute) }), phase: "Succeeded", says: "runs on node", places: "b"},
		{name: "nobody-was-there-for-long", town: set, during: onceEvicted(func(w *town) { w.clock.Step(10 * time.Minute) }), phase: "Succeeded", says: "runs on node", places: "b"},
		{name: "node-checkpoint-deleted", town: set, during: onceEvicted(func(w *town) {
			w.must(w.api.DeleteAllOf(w.Context(), &v1alpha1.NodeCheckpoint{}, client.MatchingLabels{v1alpha1.LabelMigrationAction: w.actions(w.Context())[0].Name}))
		}), phase: "SucceededWithoutState", says: "somebody has deleted the NodeCheckpoint", places: "b"},
		{name: "memory-of-others", town: set, during: at("CuttingOver", func(w *town) {
			list := &corev1.PodTemplateList{}
			w.must(w.api.List(w.Context(), list, client.InNamespace(w.namespace)))
			if by := list.Items[0].OwnerReferences; len(by) != 1 || by[0].Kind != "PodMigration" || by[0].UID != w.move().UID {
				w.Errorf("the PodTemplate is owned by %v", by)
			}
			list.Items[0].Template.Spec.Containers[0].Image = "mainspring.local/checkpoint/1:app"
			w.must(w.api.Update(w.Context(), &list.Items[0]))
		}), phase: "SucceededWithoutState", says: "may be what another pod had in memory", places: "b"},
		{name: "node-checkpoint-deleted-late", town: set, during: at("Verifying", func(w *town) {
			w.must(w.api.DeleteAllOf(w.Context(), &v1alpha1.NodeCheckpoint{}, client.MatchingLabels{v1alpha1.LabelMigrationAction: w.actions(w.Context())[0].Name}))
		}), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 26},
		{name: "not-proven", town: of("StatefulSet", func(h *house) { h.agents.ordinary = true }), phase: "Failed", says: "the pod goes on with its state, the source is gone, and the time is over", places: "b"},
		{name: "quota-lags", town: set, during: onceEvicted(func(w *town) { w.quota = 3 }), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "quota", town: set, during: onceEvicted(func(w *town) { w.quota = 45 }), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "budget", town: set, during: at("Transferring", forbid), phase: "RolledBack", says: "may not be evicted yet", places: "a", deaths: true, since: 18},
		{name: "target-cordoned", town: set, during: at("Transferring", func(w *town) { w.cordon("b") }), phase: "RolledBack", says: "takes no pod any longer: the node is cordoned", places: "a"},
		{name: "target-cordoned-before-the-eviction", town: set, during: onceStored(func(w *town) { w.cordon("b") }), phase: "RolledBack", says: "takes no pod any longer: the node is cordoned", places: "a"},
		{name: "target-dies-before-the-eviction", town: set, during: onceStored(func(w *town) { w.dies("b") }), phase: "RolledBack", says: "the node is not ready", places: "a"},
		{name: "target-tainted-before-the-eviction", town: set, during: onceStored(func(w *town) { w.taint("b") }), phase: "RolledBack", says: "the node has taint full:NoSchedule", places: "a"},
		{name: "source-is-disturbed", town: set, during: onceStored((*town).disturb), phase: "RolledBack", says: "the source does not stand still any longer", places: "a", deaths: true, since: 14},
		{name: "target-cordoned-after-the-eviction", town: set, during: onceEvicted(func(w *town) { w.cordon("b") }), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "deleted-by-its-user", town: set, during: at("Transferring", (*town).deletePod), phase: "Failed", says: "nobody here has evicted it", places: "b"},
		{name: "heir-deleted", town: set, during: at("Verifying", (*town).deletePod), phase: "SucceededWithoutState", says: "was taken away", places: "b"},
	} {
		j.ask = ask("Checkpoint")
		if j.name == "nobody-was-there" {
			j.ask = func(w *town) {
				w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = time.Hour })
			}
		}
		j.test(t)
	}
}

func (w *town) taint(node string) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n))
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "full", Effect: corev1.TaintEffectNoSchedule})
	w.must(w.api.Update(w.Context(), n))
}

// storesReplacement tells whether a PodTemplate stores the replacement.
func (w *town) storesReplacement() bool {
	w.Helper()
	list := &corev1.PodTemplateList{}
	w.must(w.api.List(w.Context(), list, client.InNamespace(w.namespace)))
	return slices.ContainsFunc(list.Items, func(o corev1.PodTemplate) bool { return o.Template.Annotations[v1alpha1.AnnotationPinned] != "" })
}

// onceStored does something when the target has the state, and the source is about to be evicted.
func onceStored(do func(w *town)) func(w *town) func(int, *process) {
	return func(w *town) func(int, *process) {
		done := false
		return func(_ int, p *process) {
			if !done && w.storesReplacement() {
				done = true
				do(w)
				p.look()
			}
		}
	}
}

// onceEvicted does something when the source was evicted and has gone, while no controller is there. Agents see that.
func onceEvicted(do func(w *town)) func(w *town) func(int, *process) {
	return func(w *town) func(int, *process) {
		done := false
		return func(_ int, p *process) {
			if done || len(w.evicted) == 0 {
				return
			}
			done = true
			do(w)
			for range 3 {
				w.live()
			}
			p.look()
		}
	}
}

// What is in the source's place has its name, its owner and its labels, and was made of the archives; the status has the evidence.
func TestWhatAReplacementIs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"StatefulSet", "Job"} {
		var h *house
		w := journey{town: func(w *town) { h = w.house(kind) }, ask: ask("Checkpoint"), phase: "Succeeded", places: "b"}.tell(t, 0, false)
		p, o := w.pods()[0], w.move()
		by := metav1.GetControllerOf(&p)
		if p.Name != o.Status.Source.PodName || p.UID == o.Status.Source.PodUID || by == nil || by.UID != h.by.UID || p.Labels["app"] != "rt" || !strings.HasPrefix(p.Spec.Containers[0].Image, "mainspring.local/checkpoint/") {
			t.Errorf("%s: pod %s of %+v with labels %v and image %s", kind, p.Name, by, p.Labels, p.Spec.Containers[0].Image)
		}
		if h.refused == 0 || o.Status.UnavailableMilliseconds == nil || !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionMigrationVerified) || !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionMigrationState) {
			t.Errorf("%s: refused %d times; %+v", kind, h.refused, o.Status)
		}
		if slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return p.Name != o.Status.Source.PodName }) {
			t.Errorf("%s: %s", kind, w.everyone())
		}
	}
}

// A pod that begins anew after all says why.
func TestAStateThatIsLost(t *testing.T) {
	t.Parallel()
	w := journey{town: func(w *town) { w.house("StatefulSet").agents.fails = v1alpha1.StageHandOver }, ask: ask("Checkpoint"), phase: "SucceededWithoutState", places: "b"}.tell(t, 0, false)
	c := meta.FindStatusCondition(w.move().Status.Conditions, v1alpha1.ConditionMigrationState)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "RestoreFailed" || !strings.Contains(c.Message, "it went wrong") {
		t.Errorf("%+v", c)
	}
}
