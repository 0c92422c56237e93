package webhooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// ofWorkload is a pod that a WorkloadOptimizer governs by its label.
func ofWorkload(p *corev1.Pod) *corev1.Pod {
	return labelled(p, kcloudv1alpha1.LabelWorkloadOptimizer, "train")
}

func workload(changes ...func(*kcloudv1alpha1.WorkloadOptimizer)) *kcloudv1alpha1.WorkloadOptimizer {
	wo := &kcloudv1alpha1.WorkloadOptimizer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train"}}
	wo.Spec.CostConstraints = &kcloudv1alpha1.CostConstraints{MaxCostPerHour: 50, PreferSpot: true}
	wo.Spec.PlacementPolicy = &kcloudv1alpha1.PlacementPolicy{
		NodeSelector: map[string]string{"accelerator": "nvidia-gpu"},
		Affinity:     []kcloudv1alpha1.PlacementAffinity{{Type: "gpu_workload", Key: "gpu.nvidia.com/class", Value: "compute", Weight: 100}},
	}
	for _, change := range changes {
		change(wo)
	}
	return wo
}

func preferred(key, value string, weight int32) corev1.PreferredSchedulingTerm {
	return corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
	}}
}

// The seed's placementPolicy and preferSpot, and the same again.
func TestAWorkloadsPodGetsItsPlacement(t *testing.T) {
	p := ofWorkload(pod("app"))
	before := p.DeepCopy()
	got := webhooks.PlaceWorkload(p, workload())
	if !reflect.DeepEqual(before, p) {
		t.Fatal("the pod that was given is changed")
	}
	want := before.DeepCopy()
	want.Spec.NodeSelector = map[string]string{"accelerator": "nvidia-gpu"}
	want.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		preferred("gpu.nvidia.com/class", "compute", 100), preferred("karpenter.sh/capacity-type", "spot", 50),
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got.Spec, want.Spec)
	}
	if again := webhooks.PlaceWorkload(got, workload()); !reflect.DeepEqual(again, got) {
		t.Errorf("placed twice it is %+v", again.Spec)
	}
}

func TestWhatAPodSaysOfItsNodeStands(t *testing.T) {
	onDemand := []corev1.NodeSelectorRequirement{{Key: karpenterv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}}}
	for name, say := range map[string]func(*corev1.PodSpec){
		"selects": func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{karpenterv1.CapacityTypeLabelKey: "on-demand"}
		},
		"requires": func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: onDemand}},
			}}}
		},
		"prefers": func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: onDemand}},
			}}}
		},
	} {
		p := ofWorkload(pod("app"))
		say(&p.Spec)
		got := webhooks.PlaceWorkload(p, workload(func(wo *kcloudv1alpha1.WorkloadOptimizer) { wo.Spec.PlacementPolicy = nil }))
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%s: %+v", name, got.Spec)
		}
	}
	p := ofWorkload(pod("app"))
	p.Spec.NodeSelector = map[string]string{"accelerator": "amd-gpu"}
	if got := webhooks.PlaceWorkload(p, workload()); got.Spec.NodeSelector["accelerator"] != "amd-gpu" {
		t.Errorf("the pod's nodeSelector is overwritten: %v", got.Spec.NodeSelector)
	}
}

func TestSomePodsAreLeftAsTheyAre(t *testing.T) {
	bound := ofWorkload(pod("app"))
	bound.Spec.NodeName = "n"
	now := metav1.Now()
	for name, c := range map[string]struct {
		pod *corev1.Pod
		wo  *kcloudv1alpha1.WorkloadOptimizer
	}{
		"bound already": {bound, workload()},
		"suspended": {ofWorkload(pod("app")), workload(func(wo *kcloudv1alpha1.WorkloadOptimizer) {
			wo.Annotations = map[string]string{kcloudv1alpha1.AnnotationDisabled: "true"}
		})},
		"deleted": {ofWorkload(pod("app")), workload(func(wo *kcloudv1alpha1.WorkloadOptimizer) { wo.DeletionTimestamp = &now })},
		"pinned":  {annotatedPod("mckube.io/pinned-to", "n"), workload()},
		"of a DaemonSet": {func() *corev1.Pod {
			p := ofWorkload(pod("app"))
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: ptr.To(true)}}
			return p
		}(), workload()},
		"labels that no node can have": {ofWorkload(pod("app")), workload(func(wo *kcloudv1alpha1.WorkloadOptimizer) {
			wo.Spec.CostConstraints = nil
			wo.Spec.PlacementPolicy.NodeSelector = map[string]string{"accelerator": "nvidia gpu", "a b": "c"}
			wo.Spec.PlacementPolicy.Affinity[0].Key = "a b"
		})},
		"says nothing": {ofWorkload(pod("app")), &kcloudv1alpha1.WorkloadOptimizer{}},
	} {
		if got := webhooks.PlaceWorkload(c.pod, c.wo); !reflect.DeepEqual(got, c.pod) {
			t.Errorf("%s: %+v", name, got.Spec)
		}
	}
}

func annotatedPod(key, value string) *corev1.Pod {
	p := ofWorkload(pod("app"))
	p.Annotations = map[string]string{key: value}
	return p
}

// A patch says nothing of fields that this program does not know.
func TestPlacementLeavesUnknownFieldsAlone(t *testing.T) {
	raw, err := json.Marshal(ofWorkload(pod("app")))
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte(`"spec":{`), []byte(`"spec":{"fieldOfTomorrow":{"x":1},`), 1)
	answer := sendTo(t, webhooks.Handlers{Cluster: &world{}, Workloads: reader{wo: workload()}}, webhooks.PathPlaceWorkloads, "Pod", raw)
	if !answer.Allowed || len(answer.Patch) == 0 || bytes.Contains(answer.Patch, []byte("fieldOfTomorrow")) {
		t.Errorf("%s", answer.Patch)
	}
	answer = sendTo(t, webhooks.Handlers{Cluster: &world{}, Workloads: reader{wo: workload()}}, webhooks.PathPlaceWorkloads, "Pod", []byte(`{"spec":{"containers":7}}`))
	if !answer.Allowed {
		t.Errorf("refused: %+v", answer.Result)
	}
}

// reader answers with one WorkloadOptimizer or an error.
type reader struct {
	client.Reader
	wo  *kcloudv1alpha1.WorkloadOptimizer
	err error
}

func (r reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if r.err != nil {
		return r.err
	}
	if key != client.ObjectKeyFromObject(r.wo) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "workloadoptimizers"}, key.Name)
	}
	r.wo.DeepCopyInto(into.(*kcloudv1alpha1.WorkloadOptimizer))
	return nil
}

// No pod is ever refused for its WorkloadOptimizer, and none is given that of another namespace.
func TestPlacementNeverRefuses(t *testing.T) {
	other := workload()
	other.Namespace = "other"
	for name, c := range map[string]struct {
		r      client.Reader
		pod    *corev1.Pod
		placed bool
	}{
		"its own":              {reader{wo: workload()}, ofWorkload(pod("app")), true},
		"of another namespace": {reader{wo: other}, ofWorkload(pod("app")), false},
		"the cache fails":      {reader{err: errors.New("down")}, ofWorkload(pod("app")), false},
		"no label":             {reader{wo: workload()}, pod("app"), false},
		"no reader":            {nil, ofWorkload(pod("app")), false},
	} {
		raw, err := json.Marshal(c.pod)
		if err != nil {
			t.Fatal(err)
		}
		answer := sendTo(t, webhooks.Handlers{Cluster: &world{unsynced: errLists}, Workloads: c.r}, webhooks.PathPlaceWorkloads, "Pod", raw)
		if !answer.Allowed || (len(answer.Patch) > 0) != c.placed {
			t.Errorf("%s: %+v", name, answer)
		}
	}
}
