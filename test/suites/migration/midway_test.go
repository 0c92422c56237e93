package migration_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// phaseTimeout bounds the wait for a phase, as every wait of a scenario is bounded.
const phaseTimeout = 5 * time.Minute

func never() *mcoperatorv1.Migration {
	return &mcoperatorv1.Migration{Policy: mcoperatorv1.MigrationNever}
}

// held begins a migration that waits, because a budget allows no eviction.
func held(nodes [2]string, changes ...func(*test.PodTemplate)) (environment.Place, *mckubev1alpha1.PodMigration) {
	GinkgoHelper()
	place := numbered(test.McKube("store", 40, test.Critical("High")), changes...)
	env.ExpectApplied(test.PodDisruptionBudget("store", 0))
	m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)))
	env.ExpectApplied(m)
	Eventually(func(g Gomega) {
		g.Expect(read(g, m).Status.Message).To(ContainSubstring("PodDisruptionBudget"))
	}).Should(Succeed())
	return place, m
}

// eventuallyEnters waits for the phase by a watch: a poll misses a phase that passes between two reads.
func eventuallyEnters(m *mckubev1alpha1.PodMigration, phase mckubev1alpha1.MigrationPhase) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(env, phaseTimeout)
	defer cancel()
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: m.ResourceVersion}}
	changes, err := env.Client.Watch(ctx, &mckubev1alpha1.PodMigrationList{}, client.InNamespace(m.Namespace), since)
	Expect(err).NotTo(HaveOccurred())
	_, err = watchtools.UntilWithoutRetry(ctx, changes, func(e watch.Event) (bool, error) {
		now, ok := e.Object.(*mckubev1alpha1.PodMigration)
		return ok && now.Name == m.Name && now.Status.Phase == phase, nil
	})
	Expect(err).NotTo(HaveOccurred(), "the migration should enter the phase %q", phase)
}

// evictOnce asks once: clients of Kubernetes come again by themselves when they are told to.
func evictOnce(p *corev1.Pod) error {
	GinkgoHelper()
	kube, err := kubernetes.NewForConfig(env.Config)
	Expect(err).NotTo(HaveOccurred())
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return kube.CoreV1().RESTClient().Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").MaxRetries(0).Body(e).Do(env).Error()
}

var _ = Describe("Midway", func() {
	It("an abort ends it, and the pod runs on", func() {
		place, m := held(twoNodes())
		began := env.Now()
		Eventually(func(g Gomega) {
			now := read(g, m)
			now.Spec.Abort = true
			g.Expect(env.Client.Update(env, now)).To(Succeed())
		}).Should(Succeed())
		eventuallyEnds(m, mckubev1alpha1.MigrationAborted)
		nothingLeft()
		undisturbed(began, place.Pod)
	})

	It("deleting it does the same", func() {
		place, m := held(twoNodes())
		began := env.Now()
		env.ExpectDeleted(m)
		env.EventuallyGone(m)
		nothingLeft()
		undisturbed(began, place.Pod)
	})

	It("a pod that its user deletes ends it, and its owner's next pod is nobody's business", func() {
		place, m := held(twoNodes())
		env.ExpectDeleted(place.Pod)
		Eventually(func(g Gomega) { g.Expect(read(g, m).Status.Phase.Over()).To(BeTrue()) }).Should(Succeed())
		env.EventuallyPlace("store")
		nothingLeft()
	})

	It("an owner that wants no pods ends it", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40), 1)[0]
		env.ExpectApplied(test.PodDisruptionBudget("control", 0))
		m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)), test.By(mckubev1alpha1.StrategyRestart))
		env.ExpectApplied(m)
		Eventually(func(g Gomega) { g.Expect(read(g, m).Status.Message).To(ContainSubstring("PodDisruptionBudget")) }).Should(Succeed())
		env.ExpectScaled(test.Deployment("control", 0, "100m"), 0)
		Eventually(func(g Gomega) { g.Expect(read(g, m).Status.Phase.Over()).To(BeTrue()) }).Should(Succeed())
		Expect(env.Pods("control")).To(BeEmpty())
		nothingLeft()
	})

	It("a target that is cordoned before anything was done ends it, and the pod runs on", func() {
		nodes := twoNodes()
		place, m := held(nodes)
		began := env.Now()
		cordon(other(nodes, place.Pod), true)
		env.ExpectApplied(test.PodDisruptionBudget("store", 1))
		eventuallyEnds(m, mckubev1alpha1.MigrationRolledBack)
		undisturbed(began, place.Pod)
		nothingLeft()
		cordon(other(nodes, place.Pod), false)
	})

	It("of two that want the last room, one has it and the other says why not", func() {
		nodes := twoNodes()
		cordon(nodes[1], true)
		one, two := replicated(test.McKube("one", 50), 1)[0], replicated(test.McKube("two", 50), 1)[0]
		cordon(nodes[0], true)
		cordon(nodes[1], false)
		replicated(test.McKube("fill", 70), 1) // leaves one core of the target with room for one of them
		cordon(nodes[0], false)
		first, second := test.PodMigration("first", one.Pod, test.To(nodes[1])), test.PodMigration("second", two.Pod, test.To(nodes[1]))
		env.ExpectApplied(first, second)
		var phases []mckubev1alpha1.MigrationPhase
		Eventually(func(g Gomega) {
			phases = []mckubev1alpha1.MigrationPhase{read(g, first).Status.Phase, read(g, second).Status.Phase}
			g.Expect(phases).To(HaveEach(Satisfy(mckubev1alpha1.MigrationPhase.Over)))
		}).Should(Succeed())
		Expect(phases).To(ContainElement(mckubev1alpha1.MigrationSucceeded))
		Expect(phases).To(ContainElement(BeElementOf(mckubev1alpha1.MigrationRefused, mckubev1alpha1.MigrationRolledBack)))
		nothingLeft()
	})

	DescribeTable("a controller that dies is followed by one that goes on",
		func(strategy mckubev1alpha1.MigrationStrategy, phase mckubev1alpha1.MigrationPhase) {
			nodes := twoNodes()
			place := replicated(test.McKube("control", 40, test.Critical("High")), 1)[0]
			m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)), test.By(strategy))
			env.ExpectApplied(m)
			if phase != "" {
				eventuallyEnters(m, phase)
			}
			env.Controller.Kill9()
			Expect(read(Default, m).Status.Phase).NotTo(Satisfy(mckubev1alpha1.MigrationPhase.Over), "it died too late")
			Expect(env.Controller.Start(env, env.Controller.Flags()...)).To(Succeed())
			eventuallyEnds(m, mckubev1alpha1.MigrationSucceeded)
			now := env.EventuallyPlace("control")
			Expect(now.Node).To(Equal(other(nodes, place.Pod)))
			nothingLeft()
		},
		Entry("surging, at once", mckubev1alpha1.StrategySurge, mckubev1alpha1.MigrationPhase("")),
		Entry("surging, as the copy is made", mckubev1alpha1.StrategySurge, mckubev1alpha1.MigrationRestoring),
		Entry("surging, as the copy proves itself", mckubev1alpha1.StrategySurge, mckubev1alpha1.MigrationVerifying),
		Entry("surging, as the source goes", mckubev1alpha1.StrategySurge, mckubev1alpha1.MigrationCuttingOver),
		Entry("restarting, at once", mckubev1alpha1.StrategyRestart, mckubev1alpha1.MigrationPhase("")),
		Entry("restarting, as the source goes", mckubev1alpha1.StrategyRestart, mckubev1alpha1.MigrationCuttingOver),
		Entry("restarting, as what is in its place proves itself", mckubev1alpha1.StrategyRestart, mckubev1alpha1.MigrationVerifying),
	)
})

var _ = Describe("An eviction of a pod that may migrate", func() {
	It("becomes a migration: kubectl drain empties a node, and each pod has run elsewhere before it went", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1)[0]
		began := env.Now()
		env.ExpectKubectl("drain", place.Node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=110s", "--pod-selector="+test.Label+"=control")
		Expect(env.EventuallyPlace("control").Node).To(Equal(other(nodes, place.Pod)))
		least, _ := ready(began, "control")
		Expect(least).To(Equal(1))
		list := &mckubev1alpha1.PodMigrationList{}
		Expect(env.Client.List(env, list)).To(Succeed())
		Expect(list.Items).To(ContainElement(And(HaveField("Spec.Trigger", mckubev1alpha1.TriggerDrain), HaveField("Spec.PodName", place.Pod.Name))))
		cordon(place.Node, false)
	})

	It("becomes a migration: who evicts one pod is told to come again, and it has run elsewhere before it goes", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1)[0]
		began := env.Now()
		err := evictOnce(place.Pod)
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("by PodMigration eviction-" + string(place.Pod.UID))))
		env.EventuallyGone(place.Pod)
		Eventually(func() error { return evictOnce(place.Pod) }).Should(Satisfy(apierrors.IsNotFound), "who comes again is done")
		Expect(env.EventuallyPlace("control").Node).To(Equal(other(nodes, place.Pod)))
		least, _ := ready(began, "control")
		Expect(least).To(Equal(1))
		m := &mckubev1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "eviction-" + string(place.Pod.UID)}}
		end := eventuallyEnds(m, mckubev1alpha1.MigrationSucceeded)
		Expect(end.Spec.Trigger).To(Equal(mckubev1alpha1.TriggerEviction))
		nothingLeft()
	})

	It("moves a StatefulSet's pod once: who comes again by its name is done, and the next drain moves the next one", func() {
		nodes := twoNodes()
		place := numbered(test.McKube("db", 40, test.Critical("High")))
		for range 2 {
			began := env.Now()
			env.ExpectKubectl("drain", place.Node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=110s", "--pod-selector="+test.Label+"=db")
			m := &mckubev1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: "eviction-" + string(place.Pod.UID)}}
			end := eventuallyEnds(m, mckubev1alpha1.MigrationSucceeded)
			Expect(end.Spec.Trigger).To(Equal(mckubev1alpha1.TriggerDrain))
			Expect(apierrors.IsNotFound(evictOnce(place.Pod))).To(BeTrue(), "by the name that both have")
			now := env.EventuallyPlace("db")
			Expect(now.Node).To(Equal(other(nodes, place.Pod)))
			Expect(now.Pod.Name).To(Equal(place.Pod.Name))
			Expect(now.Pod.UID).To(Equal(end.Status.Target.PodUID))
			Expect(everySeen(began, "db")).To(ConsistOf(place.Pod.UID, now.Pod.UID))
			cordon(place.Node, false)
			place = now
		}
		list := &mckubev1alpha1.PodMigrationList{}
		Expect(env.Client.List(env, list)).To(Succeed())
		Expect(list.Items).To(HaveLen(2))
		nothingLeft()
	})

	It("is let through for pods that are not governed", func() {
		twoNodes()
		env.ExpectApplied(test.Deployment("web", 1, "100m"))
		pod := env.EventuallyPodsBound("web", 1)[0]
		Expect(env.Client.SubResource("eviction").Create(env, pod, &policyv1.Eviction{})).To(Succeed())
		env.EventuallyGone(pod)
	})

	It("comes to its end when Karpenter closes the node", func() {
		twoNodes()
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1)[0]
		claim := env.NodeClaimOnNode(place.Node)
		began := env.Now()
		Expect(env.Client.Delete(env, claim)).To(Succeed())
		env.EventuallyGone(claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: place.Node}})
		now := env.EventuallyPlace("control")
		Expect(now.Node).NotTo(Equal(place.Node))
		least, _ := ready(began, "control")
		Expect(least).To(Equal(1))
	})
})
