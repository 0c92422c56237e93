package node_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// countingTemplate is what owners of these scenarios make their pods of.
func countingTemplate(app string) corev1.PodTemplateSpec {
	p := counting(app, "")
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: p.Spec}
}

// podsOf are those of an app, those that are about to end included.
func podsOf(g Gomega, app string) []corev1.Pod {
	list := &corev1.PodList{}
	g.Expect(env.Client.List(env, list, client.InNamespace("default"), client.MatchingLabels{"app": app})).To(Succeed())
	return list.Items
}

// answering expects that one pod of the app answers on the node, and returns it with what it tells.
func answering(app, node string) (*corev1.Pod, told) {
	GinkgoHelper()
	var p corev1.Pod
	var t told
	Eventually(func(g Gomega) {
		list := podsOf(g, app)
		g.Expect(list).To(HaveLen(1))
		p = list[0]
		g.Expect(p.Spec.NodeName).To(Equal(node))
		g.Expect(p.Status.PodIP).NotTo(BeEmpty())
		var err error
		t, err = ask(p.Status.PodIP)
		g.Expect(err).NotTo(HaveOccurred())
	}).Should(Succeed())
	return &p, t
}

// movesAlong moves the app's pod to the second node, and expects that it counts on, that no two ever answered, and that its owner has it. What is to happen meanwhile
// happens at each look.
func movesAlong(app string, meanwhile ...func(*mckubev1alpha1.PodMigration)) (*mckubev1alpha1.PodMigration, *corev1.Pod) {
	GinkgoHelper()
	p, first := answering(app, environment.RealNodeName)
	pm := migration(p, environment.SecondNodeName)
	pm.Name = app
	began := time.Now()
	Expect(env.Client.Create(env, pm)).To(Succeed())
	Eventually(func(g Gomega) {
		both := 0
		for _, one := range podsOf(g, app) {
			if _, err := ask(one.Status.PodIP); one.Status.PodIP != "" && err == nil {
				both++
			}
		}
		if both > 1 {
			StopTrying("two copies answer").Now()
		}
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(pm), pm)).To(Succeed())
		for _, do := range meanwhile {
			do(pm)
		}
		g.Expect(pm.Status.Phase.Over()).To(BeTrue(), pm.Status.Message)
	}).WithPolling(50 * time.Millisecond).Should(Succeed())
	Expect(pm.Status.Phase).To(Equal(mckubev1alpha1.MigrationSucceeded), "%s %v", pm.Status.Message, pm.Status.Conditions)
	Expect(pm.Status.Strategy).To(Equal(mckubev1alpha1.StrategyCheckpoint))
	moved, after := answering(app, environment.SecondNodeName)
	Expect(after.Self).To(Equal(first.Self), "it is the same program")
	Expect(after.Count).To(BeNumerically(">", first.Count))
	Expect(metav1.GetControllerOf(moved)).NotTo(BeNil())
	Expect(metav1.GetControllerOf(moved).UID).To(Equal(metav1.GetControllerOf(p).UID))
	Expect(pm.Status.UnavailableMilliseconds).NotTo(BeNil())
	AddReportEntry("migration", fmt.Sprintf("%s: unavailable %d ms, over after %v: %s", metav1.GetControllerOf(p).Kind, *pm.Status.UnavailableMilliseconds,
		time.Since(began).Round(time.Millisecond), pm.Status.Message), ReportEntryVisibilityAlways)
	return pm, moved
}

// evictedByName asks for the eviction of whichever pod has the name, once, as clients do again and again.
func evictedByName(name string) error {
	GinkgoHelper()
	kube, err := kubernetes.NewForConfig(env.Config)
	Expect(err).NotTo(HaveOccurred())
	return kube.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(name).SubResource("eviction").MaxRetries(0).
		Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}).Do(env).Error()
}

var _ = Describe("What is in the memory of a pod that somebody makes again", Serial, Ordered, func() {
	BeforeAll(func() {
		_, agent := env.ExpectSecondNode()
		env.NodeAgent.ExpectRunning()
		agent.ExpectRunning()
		eventuallyCapable()
	})

	// applied creates an owner whose first pod can only be on the first node.
	applied := func(owner client.Object) {
		GinkgoHelper()
		cordoned(environment.SecondNodeName, true)
		env.ExpectApplied(owner)
		answering(owner.GetName(), environment.RealNodeName)
		cordoned(environment.SecondNodeName, false)
	}

	It("goes along with a StatefulSet's pod, under its name, and does not wait for the grace period of the source, which is stopped", func() {
		template := countingTemplate("ledger")
		template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(corev1.DefaultTerminationGracePeriodSeconds))
		set := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"},
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ledger"}}, Template: template},
		}
		applied(set)
		_, moved := movesAlong("ledger")
		var graces []int64
		env.History().Walk(func(s history.State) {
			if p := s.Pods[client.ObjectKeyFromObject(moved)]; p != nil && p.Spec.NodeName == environment.RealNodeName && p.DeletionGracePeriodSeconds != nil {
				graces = append(graces, *p.DeletionGracePeriodSeconds)
			}
		})
		Expect(graces).To(And(Not(BeEmpty()), HaveEach(BeNumerically("<", corev1.DefaultTerminationGracePeriodSeconds))))
		Expect(moved.Name).To(Equal("ledger-0"))
		Expect(env.Client.Get(env, client.ObjectKeyFromObject(set), set)).To(Succeed())
		Expect(set.Generation).To(Equal(int64(1)), "nobody has changed it")
	})

	It("goes along with a StatefulSet's pod whose eviction is asked for by name all the while", func() {
		applied(&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wanted"},
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "wanted"}}, Template: countingTemplate("wanted")},
		})
		asked := map[mckubev1alpha1.MigrationPhase]int{}
		_, moved := movesAlong("wanted", func(pm *mckubev1alpha1.PodMigration) {
			switch phase := pm.Status.Phase; phase {
			case mckubev1alpha1.MigrationTransferring, mckubev1alpha1.MigrationCuttingOver, mckubev1alpha1.MigrationRestoring, mckubev1alpha1.MigrationVerifying:
				asked[phase]++
				if err := evictedByName("wanted-0"); !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
					StopTrying(fmt.Sprintf("evicted while it is %s: %v", phase, err)).Now()
				}
			}
		})
		Expect(asked).To(HaveKey(mckubev1alpha1.MigrationVerifying))
		Expect(apierrors.IsNotFound(evictedByName("wanted-0"))).To(BeTrue(), "who comes again is done")
		now, _ := answering("wanted", environment.SecondNodeName)
		Expect(now.UID).To(Equal(moved.UID))
		AddReportEntry("evictions", fmt.Sprintf("asked for: %v", asked), ReportEntryVisibilityAlways)
	})

	It("goes along with a Job's pod", func() {
		template := countingTemplate("sum")
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		applied(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sum"}, Spec: batchv1.JobSpec{Template: template}})
		movesAlong("sum")
	})

	It("goes along with a Deployment's pod, within its budget", func() {
		labels := map[string]string{"app": "web"}
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
		}
		env.ExpectApplied(budget)
		template := countingTemplate("web")
		template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3600) // longer than the suite: the source does not wait for its end
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}
		applied(deployment)

		By("waiting as long as the budget allows no disruption")
		p, first := answering("web", environment.RealNodeName)
		waiting := migration(p, environment.SecondNodeName)
		waiting.Name = "forbidden"
		Expect(env.Client.Create(env, waiting)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(waiting), waiting)).To(Succeed())
			g.Expect(waiting.Status.Message).To(ContainSubstring("PodDisruptionBudget"))
		}).Should(Succeed())
		eventuallyItself(p, first)
		before := waiting.DeepCopy()
		waiting.Spec.Abort = true
		Expect(env.Client.Patch(env, waiting, client.MergeFrom(before))).To(Succeed())
		eventuallyOver(waiting, mckubev1alpha1.MigrationAborted)

		By("going once it does")
		unlimited := budget.DeepCopy()
		unlimited.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		Expect(env.Client.Patch(env, unlimited, client.MergeFrom(budget))).To(Succeed())
		generation := deployment.Generation
		pm, _ := movesAlong("web")
		Expect(env.Client.Get(env, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		Expect(deployment.Generation).To(Equal(generation), "nobody has changed it")

		By("not waiting for the grace period of the source, which is stopped and deleted by its ReplicaSet")
		err := env.Client.Get(env, client.ObjectKeyFromObject(p), &corev1.Pod{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the source is still there: %v; the migration: %s", err, pm.Status.Message)
	})

	It("stays with a StatefulSet's pod that could not be restored", func() {
		template := countingTemplate("fragile")
		template.Spec.Containers[0].Image = environment.FirstNodeImage
		applied(&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fragile"},
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "fragile"}}, Template: template},
		})
		p, first := answering("fragile", environment.RealNodeName)
		pm := migration(p, environment.SecondNodeName)
		Expect(env.Client.Create(env, pm)).To(Succeed())
		eventuallyOver(pm, mckubev1alpha1.MigrationRolledBack)
		Expect(pm.Status.Message).To(ContainSubstring("has no image"))
		eventuallyItself(p, first)
		AddReportEntry("migration", "rolled back: "+pm.Status.Message, ReportEntryVisibilityAlways)
	})
})
