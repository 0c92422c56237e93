package migration_test

import (
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// Each spec names what the SDI Migration Service does, and shows what is done instead. docs/migration.md numbers them.
var _ = Describe("What the SDI Migration Service gets wrong: pressure.", func() {
	It("It takes what pods request for what is in use: here a node is short of what is measured, however much is requested elsewhere", func() {
		nodes := crowded() // of the first 88 % is requested
		light := ordinary("light", 1, "100m", nodes[1], nodes)[0]
		measured := metered(map[string]float64{nodes[0]: 0.3, nodes[1]: 0.95})
		began := env.Now()
		env.ExpectControllerWith(measured.flags()...)
		Eventually(func(g Gomega) { g.Expect(pressureMigrations(g)).NotTo(BeEmpty()) }).Should(Succeed())
		measured.becomes(map[string]float64{nodes[0]: 0.35, nodes[1]: 0.5})
		m := pressureMigrations(Default)[0]
		Expect(m.Spec.PodName).To(Equal(light.Name))
		eventuallyEnds(&m, mckubev1alpha1.MigrationSucceeded)
		Expect(on("light", nodes[0])).To(Equal(1))
		env.EventuallyAnyEvent("ResourcePressureBegan", "source prometheus")
		undisturbed(began, env.Pods("heavy")...)
		env.History().Since(began).Walk(func(s history.State) {
			for _, c := range s.Nodes[nodes[0]].Status.Conditions {
				Expect(c.Type).NotTo(BeEquivalentTo("ResourcePressure"), "of node %s, at revision %d", nodes[0], s.Revision)
			}
		})
	})

	It("It counts 2G, 1501M, 1500001k and 1e9 of memory as nothing: here they are what they are", func() {
		nodes := twoNodes()
		for name, memory := range map[string]string{"giga": "2G", "mega": "1501M", "kilo": "1500001k", "exponent": "1e9"} { // none of which is stored in another unit
			ordinary(name, 1, "50m", nodes[0], nodes, test.Requests(corev1.ResourceMemory, memory))
		}
		env.ExpectControllerWith("--usage-source=requests", "--migration-check-interval=1", "--resource-pressure-threshold=60") // of 8 GiB
		Eventually(func(g Gomega) { g.Expect(pressed(g, nodes[0])).To(Equal(corev1.ConditionTrue)) }).Should(Succeed())
		env.EventuallyAnyEvent("ResourcePressureBegan", "memory is at")
	})

	It("It moves the first three of the list: here the least critical goes, wherever it is listed", func() {
		nodes := twoNodes()
		keptTo(nodes[0], nodes, func() {
			replicated(test.McKube("a-safety", 30, test.Critical(mcoperatorv1.CriticalityHigh)), 1, test.Requests(corev1.ResourceCPU, "850m"))
			replicated(test.McKube("b-mission", 30, test.Critical(mcoperatorv1.CriticalityMiddle)), 1, test.Requests(corev1.ResourceCPU, "850m"))
		})
		batch := ordinary("c-batch", 1, "850m", nodes[0], nodes)[0]
		began := env.Now()
		env.ExpectControllerWith("--resource-pressure=migrate", "--usage-source=requests", "--migration-check-interval=1")
		Eventually(func(g Gomega) {
			list := pressureMigrations(g)
			g.Expect(list).To(HaveLen(1))
			g.Expect(list[0].Spec.PodName).To(Equal(batch.Name))
			g.Expect(list[0].Status.Phase).To(Equal(mckubev1alpha1.MigrationSucceeded), list[0].Status.Message)
			g.Expect(pressed(g, nodes[0])).To(Equal(corev1.ConditionFalse))
		}).Should(Succeed())
		undisturbed(began, append(env.Pods("a-safety"), env.Pods("b-mission")...)...)
		Expect(pressureMigrations(Default)).To(HaveLen(1))
	})

	It("It moves pods that have not begun to run: here they are refused, and told why", func() {
		env.ExpectApplied(test.Pod("early", "100m", test.OnNodes("no-node", "has-it")))
		refused(test.PodMigration("move", env.Pods("early")[0], test.Because(mckubev1alpha1.TriggerResourcePressure)), "PodNotRunning")
	})

	It("It rests for nothing: here a workload of which a pod has moved is left alone for a while, and no pod comes back where one has left", func() {
		nodes := crowded()
		measured := metered(map[string]float64{nodes[0]: 0.95, nodes[1]: 0.2})
		env.ExpectControllerWith(measured.flags()...)
		env.EventuallyEvent(named(nodes[0]), "ResourcePressureUnanswered", "WorkloadCooldown")
		measured.becomes(map[string]float64{nodes[0]: 0.2, nodes[1]: 0.95})
		env.EventuallyEvent(named(nodes[1]), "ResourcePressureUnanswered", "WorkloadCooldown")
		Expect(pressureMigrations(Default)).To(HaveLen(1))
		Expect([]int{on("heavy", nodes[0]), on("heavy", nodes[1])}).To(Equal([]int{2, 1}))
	})
})

var _ = Describe("What the SDI Migration Service gets wrong: the target.", func() {
	DescribeTable("It is the node with most left, and here not, when that",
		func(why string, spoil func(nodes [2]string, target string), web ...func(*test.PodTemplate)) {
			nodes := twoNodes()
			pod := ordinary("web", 1, "100m", nodes[0], nodes, web...)[0]
			spoil(nodes, nodes[1])
			began := env.Now()
			stays(test.PodMigration("move", pod, test.Because(mckubev1alpha1.TriggerResourcePressure)), why)
			undisturbed(began, pod)
		},
		Entry("is not ready", "the node is not ready", func(_ [2]string, target string) { failing(target) }),
		Entry("is cordoned", "the node is cordoned", func(_ [2]string, target string) { cordon(target, true) }),
		Entry("has a taint that the pod does not tolerate", "tolerations", func(_ [2]string, target string) {
			changed(target, func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "example.com/reserved", Effect: corev1.TaintEffectNoSchedule})
			})
		}),
		Entry("has a pod that it has to be apart from", "affinity", func(nodes [2]string, target string) { rival(nodes)(target) }, test.ApartFrom("rival")),
	)

	It("It has most left, and the pods of a workload are no longer spread as they have to be: here it stays", func() {
		twoNodes()
		env.ExpectApplied(test.Deployment("web", 2, "100m", test.SpreadOver(corev1.LabelHostname)))
		pods := env.EventuallyPodsBound("web", 2)
		Expect(environment.NodesOf(pods)).To(HaveLen(2))
		began := env.Now()
		stays(test.PodMigration("move", pods[0], test.Because(mckubev1alpha1.TriggerResourcePressure)), "topology spread")
		undisturbed(began, pods...)
	})

	It("It may then be above the threshold itself: here no pod goes where it would be, and the node's Event says so", func() {
		nodes := crowded()
		ordinary("resident", 2, "850m", nodes[1], nodes) // 60 %, to which a pod would add 28
		began := env.Now()
		env.ExpectControllerWith("--resource-pressure=migrate", "--usage-source=requests", "--migration-check-interval=1")
		env.EventuallyEvent(named(nodes[0]), "ResourcePressureUnanswered", "find no node that takes them and stays at or below the threshold")
		Expect(pressureMigrations(Default)).To(BeEmpty())
		undisturbed(began, env.Pods("heavy")...)
	})

	It("It may then be above the threshold itself by what is in use: here nothing that is optional goes there, though hardly anything is requested", func() {
		nodes := twoNodes()
		pod := ordinary("web", 1, "100m", nodes[0], nodes)[0]
		measured := metered(map[string]float64{nodes[0]: 0.3, nodes[1]: 0.84})
		env.ExpectControllerWith(measured.flags()...)
		Eventually(measured.questions).Should(BeNumerically(">=", 6), "two for each look, of which the first ones are over")
		began := env.Now()
		refused(test.PodMigration("move", pod, test.Because(mckubev1alpha1.TriggerCost)), "would itself be under pressure")
		undisturbed(began, pod)
		measured.becomes(map[string]float64{nodes[0]: 0.3, nodes[1]: 0.5})
		asked := measured.questions()
		Eventually(measured.questions).Should(BeNumerically(">=", asked+6))
		Expect(migrated(test.PodMigration("again", pod, test.Because(mckubev1alpha1.TriggerCost))).Status.Target.Node).To(Equal(nodes[1]))
	})

	It("A pod with a volume goes where its volume cannot: here it is refused, and stays", func() {
		nodes := twoZones()
		place, m := withVolumeOfZone(nodes)
		began := env.Now()
		refused(m, "volume data")
		undisturbed(began, place.Pod)
	})
})

var _ = Describe("What the SDI Migration Service gets wrong: policy.", func() {
	DescribeTable("A call to the policy engine that fails means go: here nothing that is optional goes when",
		func(engine http.HandlerFunc) {
			server := httptest.NewServer(engine)
			DeferCleanup(server.Close)
			if engine == nil {
				server.Close()
			}
			nodes := twoNodes()
			pod := ordinary("web", 1, "100m", nodes[0], nodes)[0]
			governed(policyFor("web", func(s *mckubev1alpha1.MigrationPolicySpec) {
				s.PolicyEngine = &mckubev1alpha1.PolicyEngine{URL: server.URL}
			}))
			began := env.Now()
			m := test.PodMigration("move", pod, test.Because(mckubev1alpha1.TriggerResourcePressure))
			refused(m, "failurePolicy is Deny")
			Expect(read(Default, m).Status.Decision.Engine).To(Equal("ErrorClosed"))
			undisturbed(began, pod)
		},
		Entry("it does not answer", nil),
		Entry("its answer has no allowed", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"reason":"as you like"}`)) })),
	)
})

var _ = Describe("What the SDI Migration Service gets wrong: who moves.", func() {
	It("A pod is taken for one of the Deployment that the first label names with app in its key: here its owner is asked", func() {
		nodes := twoNodes()
		bystander := replicated(test.McKube("bystander", 10), 1)[0]
		place := replicated(test.McKube("control", 40), 1, func(t *test.PodTemplate) {
			t.Labels["app.kubernetes.io/managed-by"], t.Labels["app.kubernetes.io/name"], t.Labels["deployment"] = "Helm", "bystander", "bystander"
		})[0]
		before, began := template("bystander"), env.Now()
		migrated(test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod))))
		Expect(template("bystander")).To(Equal(before))
		undisturbed(began, bystander.Pod)
	})

	It("All pods of a Deployment move for one: here only that one does", func() {
		nodes := twoNodes()
		places := replicated(test.McKube("control", 30), 3)
		began := env.Now()
		migrated(test.PodMigration("move", places[0].Pod, test.To(other(nodes, places[0].Pod))))
		undisturbed(began, places[1].Pod, places[2].Pod)
		env.EventuallyPlaced("control", 3)
	})

	It("A Deployment is pinned to its node for ever: here its template is as it was, and its next pods go anywhere", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40), 1)[0]
		before, to := template("control"), other(nodes, place.Pod)
		migrated(test.PodMigration("move", place.Pod, test.To(to)))
		Expect(template("control")).To(Equal(before))
		cordon(to, true)
		env.ExpectScaled(test.Deployment("control", 1, "100m"), 2)
		Eventually(func() []string { return environment.NodesOf(env.Pods("control")) }).Should(ConsistOf(nodes[0], nodes[1]))
		cordon(to, false)
	})

	It("PodDisruptionBudgets are not asked for a Deployment's pods: here none is away for a moment, though the budget allows no eviction", func() {
		nodes := twoNodes()
		places := replicated(test.McKube("control", 30), 2)
		env.ExpectApplied(test.PodDisruptionBudget("control", 0))
		began := env.Now()
		migrated(test.PodMigration("move", places[0].Pod, test.To(other(nodes, places[0].Pod))))
		least, _ := ready(began, "control")
		Expect(least).To(Equal(2))
	})

	It("A pod that is in a file of its node is evicted: here it is refused", func() {
		nodes := twoNodes()
		pod := test.Pod("static", "50m")
		node := &corev1.Node{}
		Expect(env.Client.Get(env, types.NamespacedName{Name: nodes[0]}, node)).To(Succeed())
		pod.Spec.NodeName, pod.Annotations = node.Name, map[string]string{corev1.MirrorPodAnnotationKey: "file"}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true)}}
		env.ExpectApplied(pod)
		env.EventuallyPodsBound("static", 1)
		began := env.Now()
		refused(test.PodMigration("move", pod), "StaticPod")
		undisturbed(began, pod)
	})
})

var _ = Describe("What the SDI Migration Service gets wrong: success.", func() {
	It("It is on record 5 s after the eviction, whatever became of the pod: here not before the one in its place is ready on its node", func() {
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40), 1)[0]
		m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)))
		migrated(m)
		env.History().Walk(func(s history.State) {
			o := s.Migrations[client.ObjectKeyFromObject(m)]
			if o == nil || o.Status.Phase != mckubev1alpha1.MigrationSucceeded {
				return
			}
			for _, p := range s.Pods {
				if p != nil && p.UID == o.Status.Target.PodUID {
					Expect(isReady(p)).To(BeTrue(), "at revision %d", s.Revision)
					return
				}
			}
			Fail("it has succeeded, and its pod is not there")
		})
	})

	It("That the rollout did not come to its end changes nothing: here a pod that never becomes ready is told, and no success", func() {
		nodes := twoNodes()
		pod, set := stuckLater("store", nodes)
		cordon(nodes[0], true) // the next pod is not to come back
		m := test.PodMigration("move", pod, test.To(nodes[1]))
		m.Spec.Timeout = &metav1.Duration{Duration: 20 * time.Second}
		env.ExpectApplied(m)
		end := eventuallyEnds(m, mckubev1alpha1.MigrationFailed)
		Expect(end.Status.Message).To(And(ContainSubstring("the time is over"), ContainSubstring("does not run yet")))
		Expect(meta.IsStatusConditionTrue(end.Status.Conditions, mckubev1alpha1.ConditionMigrationVerified)).To(BeFalse())
		env.EventuallyEvent(m, "MigrationOver", "Failed")
		env.ExpectDeleted(set)
	})

	It("It is written as True: here as true, with an integer, in the measurement of its README", func() {
		points := keepsLines()
		env.ExpectControllerWith(points.flags()...)
		nodes := twoNodes()
		pod := ordinary("web", 1, "100m", nodes[0], nodes)[0]
		migrated(test.PodMigration("move", pod, test.To(nodes[1])))
		Eventually(points.written).Should(ContainElement(MatchRegexp(
			`^pod_migration,pod_name=%s,source_node=%s,success=true,target_node=%s migration_count=1i [0-9]+$`, pod.Name, nodes[0], nodes[1],
		)))
	})

	It("A failure is not on record: here it is", func() {
		points := keepsLines()
		env.ExpectControllerWith(points.flags()...)
		refused(test.PodMigration("move", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nobody", Namespace: test.Namespace}}), "PodNotFound")
		Eventually(points.written).Should(ContainElement(MatchRegexp(`^pod_migration,pod_name=nobody,success=false migration_count=1i [0-9]+$`)))
	})

	It("A checkpoint is a name and its restore always succeeds: here what would lose its state is refused where Checkpoint was said, and else told, and not called a success", func() {
		nodes := twoNodes()
		mckube := test.McKube("control", 40)
		mckube.Spec.Migration = &mcoperatorv1.Migration{Policy: mcoperatorv1.MigrationCheckpoint}
		place := replicated(mckube, 1)[0]
		refused(test.PodMigration("ordered", place.Pod, test.To(other(nodes, place.Pod)), test.By(mckubev1alpha1.StrategyCheckpoint)), "StateImpossible: its state cannot come along")
		m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)))
		env.ExpectApplied(m)
		end := eventuallyEnds(m, mckubev1alpha1.MigrationSucceededWithoutState)
		why := meta.FindStatusCondition(end.Status.Conditions, mckubev1alpha1.ConditionMigrationState)
		Expect(why).NotTo(BeNil())
		Expect(why.Status).To(Equal(metav1.ConditionFalse))
		Expect(why.Message).To(ContainSubstring("does not say that it can"))
	})
})

var _ = Describe("What the SDI Migration Service gets wrong: the process.", func() {
	It("It moves one pod after another, with sleeps between them: here those that are in nobody's way move side by side", func() {
		nodes := twoNodes()
		var moves []*mckubev1alpha1.PodMigration
		for _, name := range []string{"one", "two", "three"} {
			moves = append(moves, test.PodMigration("move-"+name, ordinary(name, 1, "100m", nodes[0], nodes)[0], test.To(nodes[1])))
		}
		for _, m := range moves {
			env.ExpectApplied(m)
		}
		for _, m := range moves {
			eventuallyEnds(m, mckubev1alpha1.MigrationSucceeded)
		}
		most := 0
		env.History().Walk(func(s history.State) {
			n := 0
			for _, o := range s.Migrations {
				if o != nil && o.Status.Phase != "" && o.Status.Phase != mckubev1alpha1.MigrationPending && !o.Status.Phase.Over() {
					n++
				}
			}
			most = max(most, n)
		})
		Expect(most).To(BeNumerically(">=", 2), "migrations under way at once")
	})

	It("Two replicas both move pods: here the leader does, and the next one goes on where it died", Label("heavy"), SpecPriority(1), func() {
		env.ExpectControllerWith(environment.RealtimeElectionFlags()...)
		Eventually(func(g Gomega) { g.Expect(env.Leads(g, env.Controller)).To(BeTrue()) }).Should(Succeed())
		nodes := twoNodes()
		place := replicated(test.McKube("control", 40, test.Critical("High")), 1)[0]
		standby := env.ExpectReplica()
		began := env.Now()
		m := test.PodMigration("move", place.Pod, test.To(other(nodes, place.Pod)))
		env.ExpectApplied(m)
		env.EventuallyWrites(8)
		env.Controller.Kill9()
		Eventually(func(g Gomega) { g.Expect(env.Leads(g, standby)).To(BeTrue()) }).Should(Succeed(), "the other should take over")
		eventuallyEnds(m, mckubev1alpha1.MigrationSucceeded)
		Expect(everySeen(began, "control")).To(HaveLen(2), "the pod, and the one in its place")
		nothingLeft()
		Expect(standby.Stop()).To(Succeed())
	})
})
