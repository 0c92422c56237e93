package migration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// granularity is what every budget is charged beyond itself, us.
const granularity = 100

// moving is how long an action may run.
const moving = 20 * time.Second

var errDied = errors.New("the controller died")

// town is a namespace with a ReplicaSet whose pods run on node a, and a node b with room. Tests play its controller, the
// scheduler, the kubelets and the agents.
type town struct {
	testing.TB
	api       client.WithWatch
	client    client.WithWatch // as processes see it
	namespace string
	clock     *clocktesting.FakeClock
	// lock is of what is told, evicted and counted: decisions are made side by side.
	lock sync.Mutex
	// told are the Events' reasons and objects, said their words.
	told, said []string
	owner      *appsv1.ReplicaSet
	// containers of each pod; every one has a McKube and a claim.
	containers []string
	// lazy: the owner makes nothing. unready: what it makes does not run with its cores. home: it is bound to the node
	// that it came from.
	lazy, unready, home bool
	// unnamed: the action does not name the node that the pod is on.
	unnamed bool
	made    int
	// writes of processes. The one of number dieAt is the last of its process, or the first that it does not make any longer (dieBefore).
	writes, dieAt int
	dieBefore     bool
	evicted       []string
	// hiccups is how many evictions the API server still fails.
	hiccups int
	// late is called each time that the town lives.
	late func()
	// judge says what policy says. gating: the webhook gates what may be in the place of a pod that is migrated.
	judge  *court
	gating bool
	// unsent: the API server does not send the webhook what the owner makes.
	unsent bool
	// namespaces are those whose pods are moved; nil: all are.
	namespaces sets.Set[string]
	// webhookless: the controller serves no webhooks.
	webhookless bool
	// adopts: the ReplicaSet takes pods for its own that it selects, and removes what is one too many.
	adopts bool
	// agents play those of the nodes; nil: they do not know of checkpoints.
	agents *agents
	// cost is the deletion cost that the pod's author gave it. keeps: the ReplicaSet removes nothing. deaf: a process that hands it a pod
	// dies over it.
	cost        string
	keeps, deaf bool
	// core is that which the scheduler gives a pod that is pinned to a node.
	core int
	// crowds are the nodes whose cores others have.
	crowds map[string]bool
	// crowded are the nodes on which the scheduler finds no room, which it says in that word; empty: it says nothing.
	crowded map[string]bool
	word    string
	// probe is what the containers of pods that are made have, change what is changed of them.
	probe  *corev1.Probe
	change func(*corev1.PodSpec)
	// quota is how often the API server still forbids the controller to make a pod.
	quota int
	// kept is how often the API server still has the policy for replacements refuse the controller a pod.
	kept int
	// admission is what else the API server's admission does with pods that the controller makes, or asks about.
	admission func(*corev1.Pod) error
	// former is the McKube of pods that have none any longer.
	former *mcv1.McKube
	// load is what is measured on nodes; of others nothing is.
	load map[string]float64
	// seats is how many pods of the town node b has room for; 0: any number.
	seats int
}

var towns atomic.Int64

func newTown(t testing.TB, replicas int32, containers ...string) *town {
	t.Helper()
	w := &town{TB: t, namespace: fmt.Sprintf("town-%d", towns.Add(1)), clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), judge: &court{}, word: "Insufficient cpu"}
	w.containers = append([]string{"app"}, containers...)
	api := w.own(apiserver.Near(t, apiserver.Scheme(t)))
	w.api = api
	w.client = w.seen()
	w.must(api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
	t.Cleanup(w.leave)
	w.node("a", 2)
	w.node("b", 2)
	for i, container := range w.containers {
		m := statetest.McKube(w.namespace, "rt"+strings.Repeat("-more", i), "", "High", 40, 40)
		m.UID, m.Spec.Container, m.Spec.Selector = "", container, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rt"}}
		w.must(api.Create(t.Context(), m))
	}
	w.owner = w.replicaSet(replicas)
	for i := range replicas {
		w.bind(w.make(), "a", int(i)%2)
	}
	return w
}

func isDryRun(opts []client.CreateOption) bool {
	return len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
}

// seen is the API server as the controller sees it, whose evictions are on record.
func (w *town) seen() client.WithWatch {
	return interceptor.NewClient(w.api, interceptor.Funcs{
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if w.deaf && o.GetAnnotations()[mcv1.AnnotationReplaces] != "" && o.GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey] != "" {
				return errDied
			}
			return api.Patch(ctx, o, patch, opts...)
		},
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if pod, ok := o.(*corev1.Pod); ok {
				asks := strings.HasPrefix(pod.Annotations[mcv1.AnnotationReplaces], "asks/") // to which our policy says its own, before quotas are asked
				if w.quota > 0 && !asks {
					w.quota--
					return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New("exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"))
				}
				if w.kept > 0 && !asks {
					w.kept--
					return keptBack(pod)
				}
				w.webhook(pod)
				if isDryRun(opts) && !w.unsent && pod.Annotations[mcv1.AnnotationReplaces] != "" && metav1.GetControllerOf(pod) != nil {
					pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateMigration}}
				}
				if w.admission != nil {
					if err := w.admission(pod); err != nil {
						return err
					}
				}
			}
			return api.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if grace := (&client.DeleteOptions{}).ApplyOptions(opts).GracePeriodSeconds; grace != nil && *grace == 0 {
				w.Errorf("%T %s is deleted by force: its kubelet may have begun it", o, o.GetName())
			}
			return api.Delete(ctx, o, opts...)
		},
		SubResourceCreate: func(ctx context.Context, api client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption) error {
			if w.hiccups > 0 {
				w.hiccups--
				return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
			}
			w.expectGrace(o, body)
			err := api.SubResource(sub).Create(ctx, o, body, opts...)
			if err == nil {
				w.lock.Lock()
				defer w.lock.Unlock()
				w.evicted = append(w.evicted, o.GetName())
			}
			return err
		},
	})
}

// expectGrace expects the eviction of a stopped source to say that it ends at once, and that of any other to leave it its time.
func (w *town) expectGrace(o, body client.Object) {
	e, ok := body.(*policyv1.Eviction)
	if !ok || w.agents == nil {
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	if stopped, grace := w.agents.stopped[o.GetUID()], e.DeleteOptions.GracePeriodSeconds; stopped != (grace != nil) || stopped && *grace != 1 {
		w.Errorf("pod %s, stopped %t, is evicted with a grace period of %v seconds", o.GetName(), stopped, ptr.Deref(grace, -1))
	}
}

func (w *town) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// name of a node of the town.
func (w *town) name(node string) string { return w.namespace + "-" + node }

func (w *town) node(name string, cores int) {
	w.Helper()
	n := statetest.Node(w.name(name), "")
	w.must(w.api.Create(w.Context(), n)) // with its status, as a kubelet does
	n.Spec.Taints = nil                  // not-ready, by an admission plugin
	w.must(w.api.Update(w.Context(), n))
	slice := statetest.Slice(n, statetest.Cores(cores)...)
	slice.UID = ""
	w.must(w.api.Create(w.Context(), slice))
}

func (w *town) replicaSet(replicas int32) *appsv1.ReplicaSet {
	w.Helper()
	return w.replicaSetOf("rt", replicas, map[string]string{"app": "rt"})
}

func (w *town) replicaSetOf(name string, replicas int32, labels map[string]string) *appsv1.ReplicaSet {
	w.Helper()
	o := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}}},
		},
	}
	w.must(w.api.Create(w.Context(), o))
	return o
}

// scale has the owner want so many pods.
func (w *town) scale(replicas int32) {
	w.Helper()
	w.must(w.api.Get(w.Context(), client.ObjectKeyFromObject(w.owner), w.owner))
	w.owner.Spec.Replicas = &replicas
	w.must(w.api.Update(w.Context(), w.owner))
}

// make makes a pending pod of the owner.
func (w *town) make() *corev1.Pod {
	w.Helper()
	w.made++
	name := fmt.Sprintf("rt-%d", w.made)
	p := statetest.Pod(w.namespace, name, "", w.containers...)
	for i, container := range w.containers {
		p = statetest.WithClaim(p, container, name+"-"+container)
		p.Spec.Containers[i].Image, p.Spec.Containers[i].LivenessProbe = "none", w.probe
	}
	if w.change != nil {
		w.change(&p.Spec)
	}
	maps.Copy(p.Labels, w.owner.Spec.Template.Labels)
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	for _, o := range w.moves() {
		if w.gating && v1alpha1.AwaitsReplacement(&o, p) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateMigration}}
		}
	}
	w.must(w.api.Create(w.Context(), p))
	return p
}

// bind gives a pod a node and cores from one on, where it runs as configured.
func (w *town) bind(p *corev1.Pod, node string, core int) {
	w.Helper()
	w.must(w.api.SubResource("binding").Create(w.Context(), p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: w.name(node)}}))
	w.must(w.api.Get(w.Context(), client.ObjectKeyFromObject(p), p))
	server, err := rtdra.ServerOf(w.mckube(), p.UID, "app")
	w.must(err)
	for i, container := range w.containers {
		w.claim(p, container, node, (core+i)%2, server.Charge(granularity))
	}
	w.run(p)
}

func (w *town) run(p *corev1.Pod) {
	w.Helper()
	if w.unready {
		return
	}
	for _, container := range w.containers {
		object := p.Name + "-" + container
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: rtdra.ClaimName(container), ResourceClaimName: &object})
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.clock.Now())}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "containerd://c-" + p.Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.clock.Now())}}}}
	w.must(w.api.Status().Update(w.Context(), p))
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, mcv1.AnnotationConfigured, "true")
	w.must(w.api.Update(w.Context(), p))
}

func (w *town) mckube() *mcv1.McKube {
	w.Helper()
	if w.former != nil {
		return w.former
	}
	m := &mcv1.McKube{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "rt"}, m))
	return m
}

func (w *town) claim(p *corev1.Pod, container, node string, core int, ppm rt.PPM) {
	w.Helper()
	claim := statetest.Claim(p, p.Name+"-"+container, container, w.name(node), core, ppm)
	status := claim.Status
	status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("aaaaaaaa-0000-4000-8000-000000000000"))
	claim.UID = ""
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode, claim.Spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeExactCount, 1
	if err := w.api.Create(w.Context(), claim); apierrors.IsAlreadyExists(err) {
		w.must(w.api.Delete(w.Context(), claim)) // of a pod of that name which has gone by itself: the garbage collector takes it away
		w.must(w.api.Create(w.Context(), claim))
	} else {
		w.must(err)
	}
	claim.Status = status
	w.must(w.api.Status().Update(w.Context(), claim))
}

// stranger takes so much of a core of node b, without a McKube of ours.
func (w *town) stranger(core int, ppm rt.PPM) {
	w.Helper()
	w.strangerOn("b", core, ppm)
}

func (w *town) strangerOn(node string, core int, ppm rt.PPM) {
	w.Helper()
	name := fmt.Sprintf("stranger-%s-%d", node, core)
	p := statetest.WithClaim(statetest.Pod(w.namespace, name, "", "app"), "app", name+"-app")
	p.Spec.Containers[0].Image = "none"
	w.must(w.api.Create(w.Context(), p))
	w.claim(p, "app", node, core, ppm)
}

// live plays everybody but the controller for a moment.
func (w *town) live() {
	w.Helper()
	if w.late != nil {
		w.late()
	}
	w.govern()
	w.checkpoints()
	w.apply()
	pods := w.pods()
	wanted := 0
	if err := w.api.Get(w.Context(), client.ObjectKeyFromObject(w.owner), w.owner); client.IgnoreNotFound(err) != nil {
		w.must(err)
	} else if err == nil {
		wanted = int(*w.owner.Spec.Replicas)
	}
	for i := range pods {
		p := &pods[i]
		switch owned := metav1.IsControlledBy(p, w.owner); {
		case p.DeletionTimestamp != nil:
			w.finishDeletion(p)
		case len(p.Spec.SchedulingGates) > 0 || strings.HasPrefix(p.Name, "stranger"):
		case p.Spec.NodeName == "" && p.Annotations[v1alpha1.AnnotationPinned] != "":
			w.place(p, strings.TrimPrefix(p.Annotations[v1alpha1.AnnotationPinned], w.namespace+"-"))
		case !owned && p.Spec.NodeName == "":
			w.bind(p, "c", 0)
		case owned && p.Spec.NodeName == "" && w.home:
			w.bind(p, "a", 0)
		case owned && p.Spec.NodeName == "":
			w.bind(p, "b", 0)
		}
		if p.DeletionTimestamp == nil && metav1.IsControlledBy(p, w.owner) {
			wanted--
		}
	}
	for ; wanted > 0 && !w.lazy; wanted-- {
		w.make()
	}
}

// finishDeletion ends a pod that was deleted, and its claim, once: one that a finalizer keeps is there until that is off.
func (w *town) finishDeletion(p *corev1.Pod) {
	w.Helper()
	if ptr.Deref(p.DeletionGracePeriodSeconds, -1) == 0 {
		return
	}
	w.must(client.IgnoreNotFound(w.api.Delete(w.Context(), p, client.GracePeriodSeconds(0))))
	for _, container := range w.containers {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "-" + container}}
		w.must(client.IgnoreNotFound(w.api.Delete(w.Context(), claim)))
	}
}

func (w *town) pods() []corev1.Pod {
	w.Helper()
	list := &corev1.PodList{}
	w.must(w.api.List(w.Context(), list, client.InNamespace(w.namespace)))
	return list.Items
}

// running is "pod@node" of each pod of the owner.
func (w *town) running() string {
	w.Helper()
	var out []string
	for _, p := range w.pods() {
		if metav1.IsControlledBy(&p, w.owner) {
			out = append(out, p.Name+"@"+strings.TrimPrefix(p.Spec.NodeName, w.namespace+"-"))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
