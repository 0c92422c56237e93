package migration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("A PodMigration", func() {
	It("has a Deployment's pod run on the target before the first one goes, and leaves its template alone", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1)[0]
		before, began, to := template("control"), env.Now(), other(nodes, place.Pod)
		end := migrated(test.PodMigration("move", place.Pod, test.To(to)))
		Expect(end.Status.Strategy).To(Equal(mckubev1alpha1.StrategySurge))
		Expect(end.Status.Source.Node).To(Equal(place.Node))
		Expect(end.Status.Target.Node).To(Equal(to))
		Expect(meta.IsStatusConditionTrue(end.Status.Conditions, mckubev1alpha1.ConditionMigrationVerified)).To(BeTrue())
		now := env.EventuallyPlace("control")
		Expect(now.Node).To(Equal(to))
		Expect(now.Pod.UID).To(Equal(end.Status.Target.PodUID))
		Expect(metav1.GetControllerOf(now.Pod).UID).To(Equal(metav1.GetControllerOf(place.Pod).UID), "the ReplicaSet has it")
		least, most := ready(began, "control")
		Expect(least).To(Equal(1), "pods that were ready")
		Expect(most).To(Equal(2))
		Expect(template("control")).To(Equal(before))
		nothingLeft()
	})

	It("evicts the pod and has the next one run on the target where only one may be", func() {
		nodes := twoNodes()
		place := numbered(test.McKube("store", 40, test.Critical("High")))
		began, to := env.Now(), other(nodes, place.Pod)
		end := migrated(test.PodMigration("move", place.Pod, test.To(to)))
		Expect(end.Status.Strategy).To(Equal(mckubev1alpha1.StrategyRestart))
		Expect(end.Status.UnavailableMilliseconds).NotTo(BeNil())
		now := env.EventuallyPlace("store")
		Expect(now.Node).To(Equal(to))
		Expect(now.Pod.Name).To(Equal(place.Pod.Name))
		_, most := ready(began, "store")
		Expect(most).To(Equal(1), "pods at once")
		env.EventuallyEvent(place.Pod, "Migrated", to)
		nothingLeft()
	})

	It("binds what an owner makes that no McKube governs to the target, though the scheduler would rather have it back", func() {
		nodes := twoNodes()
		var pods []*corev1.Pod
		sum := test.Deployment("sum", 1, "100m").Spec.Template
		sum.Annotations = map[string]string{"pod-complete.stage.kwok.x-k8s.io/delay": "3600s"}
		sum.Spec.RestartPolicy = corev1.RestartPolicyNever
		keptTo(nodes[0], nodes, func() {
			env.ExpectApplied(test.StatefulSet("db", 1, "100m"), &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: "sum", Namespace: test.Namespace},
				Spec:       batchv1.JobSpec{Template: sum, BackoffLimit: ptr.To(int32(3))},
			})
			pods = append(env.EventuallyPodsBound("db", 1), env.EventuallyPodsBound("sum", 1)...)
		})
		ordinary("filler", 1, "800m", nodes[1], nodes)
		for _, pod := range pods {
			Expect(pod.Spec.NodeName).To(Equal(nodes[0]))
			end := migrated(test.PodMigration("move-"+pod.Labels[test.Label], pod, test.To(nodes[1])))
			Expect(end.Status.Strategy).To(Equal(mckubev1alpha1.StrategyRestart))
			Expect(env.EventuallyPodsBound(pod.Labels[test.Label], 1)[0].Spec.NodeName).To(Equal(nodes[1]))
		}
		nothingLeft()
	})

	It("only evicts when that is asked for", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40), 1)[0]
		cordon(place.Node, true)
		end := migrated(test.PodMigration("move", place.Pod, test.By(mckubev1alpha1.StrategyEvict)))
		Expect(end.Status.Strategy).To(Equal(mckubev1alpha1.StrategyEvict))
		Expect(env.EventuallyPlace("control").Node).To(Equal(other(nodes, place.Pod)))
		cordon(place.Node, false)
	})

	It("goes where there is most room when nobody says where", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40), 1)[0]
		end := migrated(test.PodMigration("move", place.Pod))
		Expect(end.Status.Target.Node).To(Equal(other(nodes, place.Pod)))
	})

	It("only tells what it would do when it is a dry run", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40), 1)[0]
		began := env.Now()
		m := test.PodMigration("move", place.Pod)
		m.Spec.DryRun = true
		env.ExpectApplied(m)
		end := eventuallyEnds(m, mckubev1alpha1.MigrationDryRun)
		Expect(end.Status.Strategy).To(Equal(mckubev1alpha1.StrategySurge))
		Expect(end.Status.Target.Node).To(Equal(other(nodes, place.Pod)))
		undisturbed(began, place.Pod)
		Expect(env.Pods("control")).To(HaveLen(1))
	})

	It("goes by itself when its time is over", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40), 1)[0]
		m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)))
		m.Spec.TTLSecondsAfterFinished = ptr.To(int32(1))
		env.ExpectApplied(m)
		env.EventuallyGone(m)
		Expect(env.EventuallyPlace("control").Node).To(Equal(other(nodes, place.Pod)))
	})
})

var _ = Describe("A PodMigration is refused, and the pod stays,", func() {
	var nodes [2]string
	BeforeEach(func() { nodes = twoNodes() })

	It("when its McKube says Never", func() {
		m := test.McKube("control", 40)
		m.Spec.Migration = never()
		place := replicated(m, 1)[0]
		began := env.Now()
		refused(test.PodMigration("move", place.Pod), "Never")
		undisturbed(began, place.Pod)
	})

	It("when no owner makes the pod again", func() {
		env.ExpectApplied(test.McKube("control", 40), test.RTPod("control"))
		place := env.EventuallyPlace("control")
		began := env.Now()
		refused(test.PodMigration("move", place.Pod), "owner")
		undisturbed(began, place.Pod)
	})

	It("when its Job would count it as failed, and say so", func() {
		m := test.McKube("batch", 30)
		test.GovernsWorkload("batch")(m)
		pods := test.RTDeployment("batch", 1).Spec.Template
		pods.Spec.RestartPolicy = corev1.RestartPolicyNever
		metav1.SetMetaDataAnnotation(&pods.ObjectMeta, "pod-complete.stage.kwok.x-k8s.io/delay", "3600s") // it runs while it is looked at
		env.ExpectApplied(m, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "batch", Namespace: test.Namespace},
			Spec:       batchv1.JobSpec{Template: pods, BackoffLimit: ptr.To(int32(0))},
		})
		place := env.EventuallyPlace("batch")
		began := env.Now()
		refused(test.PodMigration("move", place.Pod), "podFailurePolicy")
		undisturbed(began, place.Pod)
	})

	It("when it is one of a DaemonSet", func() {
		m := test.McKube("watch", 10)
		test.GovernsWorkload("watch")(m)
		env.ExpectApplied(m, test.DaemonSet("watch", "50m", test.RealTime()))
		place := env.EventuallyPlaced("watch", 2)[0]
		began := env.Now()
		refused(test.PodMigration("move", place.Pod), "DaemonSet")
		undisturbed(began, place.Pod)
	})

	It("when it may not be disrupted, and nobody asks for it by hand", func() {
		place := replicated(test.McKube("control", 40), 1, test.DoNotDisrupt())[0]
		refused(test.PodMigration("move", place.Pod, test.Because(mckubev1alpha1.TriggerResourcePressure)), "do-not-disrupt")
	})

	It("when its files are the node's, and nobody asks for it by hand", func() {
		place := replicated(test.McKube("control", 40), 1, func(t *test.PodTemplate) {
			t.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/data"}}}}
		})[0]
		refused(test.PodMigration("move", place.Pod, test.Because(mckubev1alpha1.TriggerCost)), "disk")
	})

	It("when another pod has the name", func() {
		place := replicated(test.McKube("control", 40), 1)[0]
		m := test.PodMigration("move", place.Pod)
		m.Spec.PodUID = "6f1c2a31-8c55-4a6f-9e39-1d94f7d1c1aa"
		refused(m, "uid")
	})

	It("when there is no such pod", func() {
		refused(test.PodMigration("move", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nobody", Namespace: test.Namespace}}), "nobody")
	})

	It("when the target is cordoned, is not there, or is where it runs", func() {
		place := replicated(test.McKube("control", 40), 1)[0]
		cordon(other(nodes, place.Pod), true)
		refused(test.PodMigration("cordoned", place.Pod, test.To(other(nodes, place.Pod))), other(nodes, place.Pod))
		cordon(other(nodes, place.Pod), false)
		refused(test.PodMigration("missing", place.Pod, test.To("no-such-node")), "no-such-node")
		refused(test.PodMigration("same", place.Pod, test.To(place.Node)), place.Node)
	})

	It("when no core of the target holds it", func() {
		replicated(test.McKube("big", 70), 4)
		place := env.EventuallyPlaced("big", 4)[0]
		began := env.Now()
		refused(test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod))), "core")
		undisturbed(began, place.Pod)
	})
})
