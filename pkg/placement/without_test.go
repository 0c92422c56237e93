package placement_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

// expectWithout asks whether a pod would be placed on node b once others have gone.
func (l *land) expectWithout(said string, pod *corev1.Pod, gone ...*corev1.Pod) {
	l.Helper()
	set := map[types.UID]bool{}
	for _, p := range gone {
		set[p.UID] = true
	}
	why, err := l.Asking(pod)(l.ctx, "b", set)
	l.must(err)
	if (said == "") != (why == "") || !strings.Contains(why, said) {
		l.Errorf("refused with %q; want %q", why, said)
	}
}

// waiting is a pod without a node.
func (l *land) waiting(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	l.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "rt"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}},
		}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	l.must(l.api.Create(l.ctx, p))
	return p
}

// Whoever goes takes along what keeps others off: requests, ports, affinities, counts and volumes. So does who has just gone, though
// Karpenter's record still has it.
func TestWhoGoesKeepsNobodyOff(t *testing.T) {
	l := newLand(t)
	edit := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rt"}}, TopologyKey: corev1.LabelTopologyZone,
		}}}}
	}
	there, pending := l.pod("there", "b", "2", edit), l.waiting("pending", edit)
	l.expectWithout("pod default/pending", pending)
	l.expectWithout("", pending, there)
	l.must(l.api.Delete(l.ctx, there, client.GracePeriodSeconds(0)))
	l.expectWithout("", pending, there)
}

// Who is counted on each host is what a spread over hosts goes by, not that a host without any could be opened.
func TestSpreadOverHostsGoesByTheLeast(t *testing.T) {
	l := newLand(t)
	spread := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = nil
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rt"}},
		}}
	}
	pending := l.waiting("pending", spread)
	first := l.pod("first", "b", "1", spread)
	l.expectWithout("pod default/pending", pending)
	l.pod("other", "a", "1", spread)
	l.expectWithout("", pending)
	second := l.pod("second", "b", "1", spread)
	l.expectWithout("pod default/pending", pending)
	l.expectWithout("", pending, second)
	l.expectWithout("", pending, first, second)
}

func TestWhatIsNotKnownYetIsNoAnswer(t *testing.T) {
	l := newLand(t)
	l.cluster.SetSynced(false)
	l.cluster.DeleteNode("b")
	if why, err := l.Refusal(l.ctx, "b", []*corev1.Pod{l.waiting("pending")}); err == nil {
		t.Errorf("refused with %q before the nodes were known", why)
	}
}

// Volumes that have no place yet are made where their class allows, and no node takes more than it says.
func TestVolumesToBeMadeAndLimits(t *testing.T) {
	l := newLand(t)
	t.Cleanup(func() { apiserver.Empty(t, l.api, &storagev1.StorageClassList{}, &storagev1.CSINodeList{}) })
	for _, zone := range []string{"zone-a", "zone-b"} {
		l.must(l.api.Create(l.ctx, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: zone}, Provisioner: "disk", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
			AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: []string{zone}}}}},
		}))
		l.must(l.api.Create(l.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: zone}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(zone),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}))
	}
	l.expectWithout("pod default/far", l.waiting("far", claims("zone-a")))
	near := l.waiting("near", claims("zone-b"))
	l.expectWithout("", near)
	l.must(l.api.Create(l.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "another"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("zone-b"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}))
	there := l.pod("there", "b", "1", claims("another"))
	l.must(l.api.Create(l.ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: "disk", NodeID: "b", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](1)}}},
	}}))
	l.expectWithout("pod default/near", near)
	l.expectWithout("", near, there)
}

// A volume that one pod may have at a time is had by nobody else before that has gone.
func TestAVolumeOfOnePod(t *testing.T) {
	l := newLand(t)
	l.must(l.api.Create(l.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, StorageClassName: ptr.To(""),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}))
	pending := l.waiting("pending", claims("own"))
	l.expectWithout("", pending)
	there := l.pod("there", "a", "1", claims("own"))
	l.expectWithout("PersistentVolumeClaim own is for one pod at a time, and pod default/there has it", pending)
	l.expectWithout("", pending, there)
}
