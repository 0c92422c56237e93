package migration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// named is a node of that name, for Events about it.
func named(node string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
}

// changed changes the Node.
func changed(node string, change func(*corev1.Node)) {
	GinkgoHelper()
	environment.ExpectChanged(env, named(node), change)
}

// failing has the kubelet of a node say that it is not ready.
func failing(node string) {
	GinkgoHelper()
	changed(node, func(n *corev1.Node) { n.Labels["kwok.x-k8s.io/stage"] = "unhealthy" }) // kwok leaves its conditions alone
	Eventually(func(g Gomega) {
		n := &corev1.Node{}
		g.Expect(env.Client.Get(env, types.NamespacedName{Name: node}, n)).To(Succeed())
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == corev1.NodeReady {
				n.Status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
		g.Expect(env.Client.Status().Update(env, n)).To(Succeed())
	}).Should(Succeed())
}

// rival puts a pod on a node that "web" has to be apart from.
func rival(nodes [2]string) func(string) {
	return func(node string) { ordinary("rival", 1, "50m", node, nodes) }
}

// stuckLater applies a StatefulSet of one pod, on the first node. Its pod runs; one that is made later never does.
func stuckLater(name string, nodes [2]string) (*corev1.Pod, *appsv1.StatefulSet) {
	GinkgoHelper()
	set := test.StatefulSet(name, 1, "100m")
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	var pod *corev1.Pod
	keptTo(nodes[0], nodes, func() {
		env.ExpectApplied(set)
		pod = env.EventuallyPodsBound(name, 1)[0]
	})
	environment.ExpectChanged(env, set, func(s *appsv1.StatefulSet) {
		s.Spec.Template.Annotations = map[string]string{"pod-ready.stage.kwok.x-k8s.io/delay": "1h"}
	})
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(set), set)).To(Succeed())
		g.Expect(set.Status.ObservedGeneration).To(Equal(set.Generation))
	}).Should(Succeed())
	return pod, set
}

// volumeOfZone is a volume that only nodes of a zone can have, and its claim.
func volumeOfZone(zone string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	room := corev1.ResourceList{corev1.ResourceStorage: *test.Pod("none", "1").Spec.Containers[0].Resources.Requests.Memory()}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: room, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: test.Namespace, Name: "data"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "files." + zone, Path: "/"}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
				}}}},
			},
		}, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To(""), VolumeName: "data", AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: room},
			},
		}
}

// withVolumeOfZone has a pod with a volume of the first node's zone run there, and a migration of it that names no target.
func withVolumeOfZone(nodes [2]string) (environment.Place, *mckubev1alpha1.PodMigration) {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(env.Client.Get(env, types.NamespacedName{Name: nodes[0]}, node)).To(Succeed())
	volume, claim := volumeOfZone(node.Labels[corev1.LabelTopologyZone])
	env.ExpectApplied(volume, claim)
	DeferCleanup(func() { env.ExpectDeleted(claim, volume) })
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		g.Expect(claim.Status.Phase).To(Equal(corev1.ClaimBound))
	}).Should(Succeed())
	place := numbered(test.McKube("store", 40), func(t *test.PodTemplate) {
		t.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}}}
	})
	Expect(place.Node).To(Equal(nodes[0]))
	return place, test.PodMigration("move", place.Pod, test.To(nodes[1]), test.Because(mckubev1alpha1.TriggerResourcePressure))
}
