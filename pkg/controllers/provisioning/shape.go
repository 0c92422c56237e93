package provisioning

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// Headroom is the value, in JSON or YAML, of annotation mckube.io/headroom of a NodePool: for how many further pods of
// one real-time container there must always be room, and what each is.
type Headroom struct {
	// Pods is how many, 1 to 50.
	Pods int32 `json:"pods"`
	// Criticality and RTSettings are those of their McKube. Cores are not among it: any will do.
	Criticality mcv1.Criticality `json:"criticality"`
	RTSettings  mcv1.RTSettings  `json:"rtSettings"`
	// Resources that each pod requests.
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// mostHeadroom is how many pods one NodePool may keep room for.
const mostHeadroom = 50

// ParseHeadroom reads the annotation's value.
func ParseHeadroom(text string) (Headroom, error) {
	var h Headroom
	if err := yaml.UnmarshalStrict([]byte(text), &h); err != nil {
		return Headroom{}, fmt.Errorf("reading it: %w", err)
	}
	if h.Pods < 1 || h.Pods > mostHeadroom {
		return Headroom{}, fmt.Errorf("pods is %d; it must be from 1 to %d", h.Pods, mostHeadroom)
	}
	for name, quantity := range h.Resources {
		if quantity.Sign() < 0 {
			return Headroom{}, fmt.Errorf("resources.%s is %s; it must not be negative", name, quantity.String())
		}
	}
	return h, nil
}

// objects are what stands for the headroom: for each pod a claim, a template that names the claim, and a CapacityBuffer
// of one such pod. Their names say what they ask for.
func (h Headroom) objects(pool *karpv1.NodePool, namespace string, granularity int64) ([]client.Object, error) {
	h.RTSettings.Core = nil
	spec, err := rtdra.ClaimSpec(&mcv1.McKube{
		ObjectMeta: metav1.ObjectMeta{Name: "headroom"},
		Spec:       mcv1.McKubeSpec{Podname: "headroom", Criticality: h.Criticality, RTSettings: &h.RTSettings},
	}, granularity)
	if err != nil {
		return nil, err
	}
	template := h.template(pool)
	sum, err := digest(spec, template, pool.UID)
	if err != nil {
		return nil, err
	}
	var out []client.Object
	for i := range h.Pods {
		about := metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("headroom-%s-%d", sum, i), Labels: map[string]string{v1alpha1.LabelHeadroom: pool.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: pool.Name, UID: pool.UID}},
		}
		one := template.DeepCopy()
		one.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: claimInPod, ResourceClaimName: &about.Name}}
		out = append(out,
			&resourcev1.ResourceClaim{ObjectMeta: *about.DeepCopy(), Spec: spec},
			&corev1.PodTemplate{ObjectMeta: *about.DeepCopy(), Template: *one},
			&autoscalingv1beta1.CapacityBuffer{ObjectMeta: *about.DeepCopy(), Spec: autoscalingv1beta1.CapacityBufferSpec{
				PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: about.Name}, Replicas: ptr.To(int32(1)),
			}},
		)
	}
	return out, nil
}

// claimInPod is the name of the claim within the pod.
const claimInPod = "core"

// template is a pod of the shape, which may run on every node of the NodePool that is in order.
func (h Headroom) template(pool *karpv1.NodePool) corev1.PodTemplateSpec {
	requests := h.Resources
	if requests == nil {
		requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(0, resource.DecimalSI)}
	}
	out := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{karpv1.NodePoolLabelKey: pool.Name},
		Containers: []corev1.Container{{
			Name: "headroom", Image: "headroom",
			Resources: corev1.ResourceRequirements{Requests: requests, Claims: []corev1.ResourceClaim{{Name: claimInPod}}},
		}},
	}}
	for _, taint := range pool.Spec.Template.Spec.Taints {
		out.Spec.Tolerations = append(out.Spec.Tolerations, corev1.Toleration{
			Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect,
		})
	}
	return out
}

// digest is a short name for what is asked for.
func digest(parts ...any) (string, error) {
	data, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("encoding headroom: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:5]), nil
}
