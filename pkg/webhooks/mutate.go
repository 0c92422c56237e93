package webhooks

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// labelValue is that of label sdv.com where we add it; any value marks a real-time pod.
const labelValue = "true"

// Surroundings are what a pod's mutation depends on beside the pod.
type Surroundings struct {
	// McKubes that govern it, oldest first.
	McKubes []*mcv1.McKube
	// Preempting is the highest criticality of pods for which room is being made now; nil for none.
	Preempting *rt.Criticality
	// Replacing: it may be in the place of a pod that is migrated.
	Replacing bool
	// Granularity is charged to every budget, in microseconds.
	Granularity int64
}

// MutatePod returns the pod with what its McKubes give it: a claim for each governed container, the
// annotations and the label of real-time pods, the node that a McKube names, and a scheduling gate
// while room is being made for a more critical pod, or while it may be in the place of one that is migrated. The pod itself
// is left alone. The error says what in the pod or its McKubes must change. Mutating twice is mutating once.
func MutatePod(pod *corev1.Pod, in Surroundings) (*corev1.Pod, error) {
	list, err := bind(pod, in.McKubes)
	if err != nil {
		return nil, err
	}
	out := pod.DeepCopy()
	annotate(out, list)
	if len(list) == 0 {
		if in.Replacing && out.Spec.NodeName == "" {
			addGate(out, mckubev1alpha1.GateMigration)
		}
		return out, await(out)
	}
	if _, labelled := out.Labels[mcv1.LabelRT]; !labelled {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[mcv1.LabelRT] = labelValue
	}
	node, err := nodeOf(list)
	if err != nil {
		return nil, err
	}
	if out.Spec.NodeName != "" {
		return out, onNode(out, node)
	}
	requireNode(out, node)
	for _, b := range list {
		if err := claim(out, b, in.Granularity); err != nil {
			return nil, err
		}
	}
	if in.Preempting != nil && criticality(list) < *in.Preempting {
		addGate(out, mcv1.GateYield)
	}
	if in.Replacing {
		addGate(out, mckubev1alpha1.GateMigration)
	}
	return out, nil
}

// onNode checks a pod that was bound before it was created. The scheduler never sees it, so a claim
// would never be allocated: the controller admits such pods where they are.
func onNode(pod *corev1.Pod, node string) error {
	if node != "" && pod.Spec.NodeName != node {
		return fmt.Errorf("spec.nodeName is %q; its McKube binds the pod to node %q", pod.Spec.NodeName, node)
	}
	return nil
}

// requireNode adds the node to each way in which the pod's affinity can be met.
func requireNode(pod *corev1.Pod, node string) {
	if node == "" {
		return
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	affinity := pod.Spec.Affinity
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return isHost(r, node) }) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			})
		}
	}
}

func isHost(r corev1.NodeSelectorRequirement, node string) bool {
	return r.Key == corev1.LabelHostname && r.Operator == corev1.NodeSelectorOpIn && slices.Equal(r.Values, []string{node})
}

// await has a pod that came before its McKube wait for it, instead of running without a core: its claim is made from a
// template that the McKube fills when it comes. The webhook does not know yet which of several containers will be
// governed, and the scheduler never sees a pod that is bound already. So these run, and are admitted where they are.
func await(pod *corev1.Pod) error {
	if _, labelled := pod.Labels[mcv1.LabelRT]; !labelled || pod.Spec.NodeName != "" || len(pod.Spec.Containers) != 1 {
		return nil
	}
	base := pod.Name
	if base == "" {
		base = pod.GenerateName
	}
	container := pod.Spec.Containers[0].Name
	return claimFrom(pod, container, rtdra.AwaitedTemplate(base, container))
}

// claim gives the container its claim.
func claim(pod *corev1.Pod, b binding, granularity int64) error {
	template, err := rtdra.TemplateName(b.mckube, granularity)
	if err != nil {
		return err
	}
	return claimFrom(pod, b.container, template)
}

// claimFrom gives the container a claim that is made from the template. A claim of that name that came
// with a copied pod is replaced.
func claimFrom(pod *corev1.Pod, of, template string) error {
	name := rtdra.ClaimName(of)
	wanted := corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &template}
	at := slices.IndexFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == name })
	switch {
	case at < 0:
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, wanted)
	case pod.Spec.ResourceClaims[at].ResourceClaimTemplateName == nil:
		return fmt.Errorf("spec.resourceClaims[%d].name is %q, which is kept for the core of container %s; it must have another name", at, name, of)
	default:
		pod.Spec.ResourceClaims[at] = wanted
	}
	container := containerNamed(&pod.Spec, of)
	if !slices.ContainsFunc(container.Resources.Claims, func(c corev1.ResourceClaim) bool { return c.Name == name }) {
		container.Resources.Claims = append(container.Resources.Claims, corev1.ResourceClaim{Name: name})
	}
	return nil
}

// containerNamed is the container that bind found, an ordinary one or a sidecar.
func containerNamed(spec *corev1.PodSpec, name string) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return &spec.Containers[i]
		}
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return &spec.InitContainers[i]
		}
	}
	return &corev1.Container{}
}

func addGate(pod *corev1.Pod, name string) {
	gate := corev1.PodSchedulingGate{Name: name}
	if !slices.Contains(pod.Spec.SchedulingGates, gate) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, gate)
	}
}
