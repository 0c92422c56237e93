package hollow

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// agent is a machine with what was read for it and written of it.
type agent struct {
	node    types.UID
	machine *Machine
	script  script
	scripts map[types.UID]script // of pods
	resumed bool

	reported    v1alpha1.RTNodeStatus // without the heartbeat
	reportedOn  types.UID             // of the RTNode
	reportedAt  time.Time
	livedAt     time.Time // the last sign of life: the status or the Lease
	everWritten bool
}

// script is a script as it was read, so that each is read, and complained about, once.
type script struct {
	known bool
	text  string
	steps []Step
	base  time.Time
}

func newAgent(node *corev1.Node, cores []rt.Core) *agent {
	created := node.CreationTimestamp.Time
	return &agent{node: node.UID, machine: NewMachine(cores, created), scripts: map[types.UID]script{}}
}

// observe shows the machine what is there; the first time, what an earlier agent had reported too.
func (a *agent) observe(v View, now time.Time) {
	if v.RTNode != nil && !a.resumed {
		a.machine.Resume(v.RTNode.Status)
		a.resumed = true
	}
	a.machine.Observe(v, now)
}

// view reads what the node's agent can see.
func (f *Fleet) view(ctx context.Context, a *agent, node *corev1.Node, rtNode *v1alpha1.RTNode) (View, error) {
	before := a.script
	a.script = f.read(node, before, node.CreationTimestamp.Time, ParseNodeScript)
	if a.script.text != before.text {
		a.machine.SetScript(a.script.steps, a.script.base)
	}
	v := View{RTNode: rtNode, Dead: unreachable(node)}
	if rtNode == nil {
		return v, nil
	}
	pods := &corev1.PodList{}
	if err := f.Client.List(ctx, pods, client.MatchingFields{NodeNameField: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return View{}, fmt.Errorf("listing the pods of the node: %w", err)
	}
	v.Containers = f.containers(a, pods.Items)
	return v, nil
}

// containers are those of the pods that have not ended.
func (f *Fleet) containers(a *agent, pods []corev1.Pod) map[Key]Container {
	all := map[Key]Container{}
	scripts := make(map[types.UID]script, len(a.scripts))
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		begun := started(pod)
		s := f.read(pod, a.scripts[pod.UID], time.Time{}, ParsePodScript)
		scripts[pod.UID] = s
		for _, name := range containerNames(pod) {
			c := Container{Started: begun[name], Script: s.steps, Base: s.base}
			if c.Base.IsZero() {
				c.Base = c.Started
			}
			all[Key{Pod: pod.UID, Container: name}] = c
		}
	}
	a.scripts = scripts
	return all
}

// read reads an object's script when it is new. Its time begins at base, or, when it has replaced
// another script, now.
func (f *Fleet) read(object client.Object, before script, base time.Time, parse func(string) ([]Step, error)) script {
	text := object.GetAnnotations()[AnnotationScript]
	if before.known && before.text == text {
		return before
	}
	s := script{known: true, text: text, base: base}
	if before.known {
		s.base = f.Clock.Now()
	}
	var err error
	if s.steps, err = parse(text); err != nil {
		f.complain(object, err)
	}
	return s
}

// complain tells, on the object itself, that its script cannot be read.
func (f *Fleet) complain(object runtime.Object, err error) {
	f.Recorder.Eventf(object, nil, corev1.EventTypeWarning, "BadScript", "Read", "Annotation %s: %s", AnnotationScript, err)
}

// rtNode is the RTNode of the node; nil when there is none, or one of an earlier node of the name.
func (f *Fleet) rtNode(ctx context.Context, node *corev1.Node) (*v1alpha1.RTNode, error) {
	found := &v1alpha1.RTNode{}
	if err := f.Client.Get(ctx, client.ObjectKeyFromObject(node), found); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !ownedBy(found, node.UID) {
		return nil, nil
	}
	return found, nil
}

func ownedBy(o metav1.Object, uid types.UID) bool {
	for _, owner := range o.GetOwnerReferences() {
		if owner.UID == uid {
			return true
		}
	}
	return false
}

// unreachable says that the machine itself does not answer.
func unreachable(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
}

// started are the times at which the pod's containers started, by name.
func started(pod *corev1.Pod) map[string]time.Time {
	begun := map[string]time.Time{}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, s := range statuses {
			if s.State.Running != nil {
				begun[s.Name] = s.State.Running.StartedAt.Time
			}
		}
	}
	return begun
}

func containerNames(pod *corev1.Pod) []string {
	var names []string
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range containers {
			names = append(names, c.Name)
		}
	}
	return names
}
