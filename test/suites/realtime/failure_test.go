package realtime_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("Bad days:", func() {
	It("a broken node's containers get cores elsewhere", func() {
		m := test.McKube("control", 60, test.GovernsWorkload("control"))
		env.ExpectApplied(twoCores(), m, test.RTDeployment("control", 2))
		before := env.EventuallyPlaced("control", 2)
		claim := env.NodeClaimOnNode(before[0].Node)
		fault := test.Fault("broken", mckubev1alpha1.FaultNodeFailure,
			test.Breaks(string(kwok.KWOKUnhealthyCondition)), test.StrikesNodeClaims(claim.Name))
		env.ExpectFault(fault)
		env.EventuallyGone(claim)
		after := env.EventuallyPlaced("control", 2)
		Expect(nodes(after...)).NotTo(ContainElement(before[0].Node))
		Eventually(func() map[string]*mckubev1alpha1.RTNode { return env.Recorded().Last().RTNodes }).ShouldNot(HaveKey(before[0].Node))
		env.EventuallyTrue(m, mcoperatorv1.ConditionReady)
	})

	It("a machine that is taken away takes nothing of the promises with it", func() {
		m := test.McKube("control", 60, test.GovernsWorkload("control"))
		env.ExpectApplied(twoCores(test.CapacityTypes("spot")), m, test.RTDeployment("control", 2))
		before := env.EventuallyPlaced("control", 2)
		fault := test.Fault("market", mckubev1alpha1.FaultSpotInterruption, test.Notice(5*time.Second), test.StrikesAtMost(1))
		env.ExpectFault(fault)
		env.EventuallyStruck(fault, 1)
		Eventually(func() []string { return nodes(env.EventuallyPlaced("control", 2)...) }).ShouldNot(ContainElement(before[0].Node))
		env.EventuallyTrue(m, mcoperatorv1.ConditionReady)
	})

	It("an agent that has been silent for 10 seconds is told of, and heard of again", func() {
		m := test.McKube("control", 30)
		env.ExpectApplied(twoCores())
		place := governed(m)
		alive := func() metav1.ConditionStatus {
			c := meta.FindStatusCondition(env.RTNode(place.Node).Status.Conditions, mckubev1alpha1.ConditionAgentAlive)
			if c == nil {
				return metav1.ConditionUnknown
			}
			return c.Status
		}
		Eventually(alive).Should(Equal(metav1.ConditionTrue))
		playOnNode(place.Node, "0s silent 20s")
		Eventually(alive).Should(Equal(metav1.ConditionFalse))
		env.EventuallyFalse(m, mcoperatorv1.ConditionReady, "AgentSilent", place.Node)
		env.EventuallyAnyEvent("AgentSilent", "")
		Eventually(alive).Should(Equal(metav1.ConditionTrue))
		env.EventuallyTrue(m, mcoperatorv1.ConditionReady)
		Expect(env.EventuallyPlace("control").Pod.UID).To(Equal(place.Pod.UID))
	})

	It("the agents are killed: what runs stays where it is, and what comes meanwhile is placed afterwards", func() {
		env.ExpectApplied(twoCores(oneMachine))
		place := governed(test.McKube("control", 60))
		env.Agents.Kill9()
		env.ExpectApplied(test.McKube("later", 60), test.RTPod("later"))
		env.EventuallyPodsBound("later", 1)
		env.ExpectAgents()
		Expect(env.EventuallyPlace("later").Core).NotTo(Equal(place.Core))
		Expect(env.EventuallyPlace("control").Core).To(Equal(place.Core))
	})

	It("the controller is killed again and again while 30 pods arrive: none is lost, and no core promised twice", Label("heavy"), SpecPriority(2), func() {
		const pods, kills = 30, 6
		random := environment.Random()
		env.ExpectApplied(threeCores(), test.McKube("swarm", 40, test.GovernsWorkload("swarm"), test.Critical(middle)))
		swarm := test.RTDeployment("swarm", 5)
		env.ExpectApplied(swarm)
		for kill := range kills {
			env.ExpectScaled(swarm, int32(5+(kill+1)*(pods-5)/kills)) //nolint:gosec // small
			env.EventuallyWrites(random.IntN(80))
			env.Controller.Kill9()
			GinkgoWriter.Printf("kill %d with %d pods placed\n", kill, placed(env.History().Last(), "swarm"))
			Expect(env.Controller.Start(env, env.Controller.Flags()...)).To(Succeed())
		}
		places := env.EventuallyPlaced("swarm", pods)
		perCore := map[string]int{}
		for _, p := range places {
			perCore[p.Node+"/"+strconv.Itoa(int(p.Core))]++
		}
		Expect(lo.Values(perCore)).To(HaveEach(BeNumerically("<=", 2)), "two times 0.4 on a core of 0.9")
	})

	It("two controllers hand over while pods arrive: none is lost, and no core promised twice", Label("heavy"), SpecPriority(1), func() {
		env.ExpectControllerWith(environment.RealtimeElectionFlags()...)
		Eventually(func(g Gomega) { g.Expect(env.Leads(g, env.Controller)).To(BeTrue()) }).Should(Succeed())
		standby := env.ExpectReplica()
		swarm := test.RTDeployment("swarm", 6)
		env.ExpectApplied(twoCores(), test.McKube("swarm", 40, test.GovernsWorkload("swarm")), swarm)
		before := env.EventuallyPlaced("swarm", 6)
		env.ExpectScaled(swarm, 10)
		env.EventuallyWrites(10)
		env.Controller.Kill9()
		env.ExpectScaled(swarm, 12)
		Eventually(func(g Gomega) { g.Expect(env.Leads(g, standby)).To(BeTrue()) }).Should(Succeed(), "the other should take over")
		after := env.EventuallyPlaced("swarm", 12)
		for _, was := range before {
			Expect(after).To(ContainElement(And(
				HaveField("Pod.UID", was.Pod.UID), HaveField("Node", was.Node), HaveField("Core", was.Core),
			)), "%s stays where it is: the new leader knows the cores from the API", was)
		}
		Expect(standby.Stop()).To(Succeed())
	})

	It("a controller that takes over waits for the node that is on its way, and has nobody evicted meanwhile", Label("heavy"), SpecPriority(1), func() {
		env.ExpectControllerWith(append(environment.RealtimeElectionFlags(), env.ProductBatches()...)...)
		Eventually(func(g Gomega) { g.Expect(env.Leads(g, env.Controller)).To(BeTrue()) }).Should(Succeed())
		standby := env.ExpectReplica()
		env.ExpectApplied(twoCores(), test.McKube("weak", 70, test.GovernsWorkload("weak")), test.RTDeployment("weak", 2))
		victims := env.EventuallyPlaced("weak", 2)
		Expect(nodes(victims...)).To(HaveLen(1))
		env.ExpectFault(test.Fault("slow", mckubev1alpha1.FaultSlowRegistration, test.StrikesNodePools("two"), test.Delay(time.Minute)))
		began := env.Now()
		env.ExpectApplied(test.McKube("strong", 50, test.Critical(high)), test.RTPod("strong"))
		env.EventuallyUnschedulable("strong")
		Eventually(func() int { return len(env.Recorded().Last().NodeClaims) }).Should(Equal(2))
		Consistently(func() []string { return lost(env.Recorded(), victims) }).WithTimeout(20*time.Second).Should(BeEmpty(), "the first leader waits")

		Expect(env.Controller.Stop()).To(Succeed())
		pods := 0
		another := func() { // one more keeps the provisioner from deciding until its longest batch is over
			pods++
			env.ExpectApplied(test.Pod("nowhere-"+strconv.Itoa(pods), "100m", inPool("none")))
		}
		Eventually(func(g Gomega) {
			another()
			g.Expect(env.Leads(g, standby)).To(BeTrue())
		}).Should(Succeed(), "the other should take over")
		Consistently(func(Gomega) { another() }).WithTimeout(8 * time.Second).WithPolling(400 * time.Millisecond).Should(Succeed())
		env.EventuallyPlace("strong")
		undisturbed(began, victims[0].Pod, victims[1].Pod)
		Expect(env.History().Events("Preempting", "")).To(BeEmpty())
		Expect(env.History().Last().NodeClaims).To(HaveLen(2))
		Expect(standby.Stop()).To(Succeed())
	})

	It("the API server is away for 15 seconds: cores and budgets are the same afterwards", Label("heavy"), SpecPriority(1), func() {
		env.ExpectControllerWith("--simulated-repair-toleration=10m")
		env.ExpectApplied(twoCores(), test.McKube("control", 60, test.GovernsWorkload("control"), test.Critical(high)), test.RTDeployment("control", 3))
		before := env.EventuallyPlaced("control", 3)
		env.ExpectOutage(15 * time.Second)
		after := env.EventuallyPlaced("control", 3)
		Expect(lo.Map(after, whereabouts)).To(Equal(lo.Map(before, whereabouts)))
		env.ExpectApplied(test.McKube("later", 60), test.RTPod("later"))
		Eventually(func(g Gomega) {
			h := env.Recorded()
			g.Expect(placed(h.Last(), "later")).To(Equal(1))
		}).Should(Succeed(), "kubelets come back only after a while")
	})

	It("the webhook is away: real-time pods are refused and told why, every other pod is not concerned", func() {
		env.ExpectApplied(twoCores(), test.McKube("control", 30))
		place := governed(test.McKube("before", 30))
		Expect(env.Controller.Stop()).To(Succeed())
		Expect(env.Client.Create(env, test.RTPod("control"))).To(MatchError(ContainSubstring("pods.mutate.mckube.io")))
		Expect(env.Client.Create(env, test.McKube("other", 30))).To(MatchError(ContainSubstring("mckubes.validate.mckube.io")))
		env.ExpectApplied(test.Pod("ordinary", "100m", inPool("two")))
		env.EventuallyPodsBound("ordinary", 1)
		environment.ExpectChanged(env, env.Pods("before")[0], func(p *corev1.Pod) { p.Labels["changed"] = "yes" })

		Expect(env.Controller.Start(env, env.Controller.Flags()...)).To(Succeed())
		Eventually(func() error { return env.Client.Create(env, test.RTPod("control")) }).Should(Succeed())
		env.EventuallyPlace("control")
		Expect(env.EventuallyPlace("before").Core).To(Equal(place.Core))
	})
})

// placed counts the workload's pods that have a server on some RTNode.
func placed(s history.State, workload string) int {
	n := 0
	for _, p := range s.Pods {
		if srv, _ := serverOf(s, p.UID); srv != nil && p.Labels[test.Label] == workload {
			n++
		}
	}
	return n
}

type whereabout struct {
	pod  types.UID
	node string
	core int32
}

func whereabouts(p environment.Place, _ int) whereabout { return whereabout{p.Pod.UID, p.Node, p.Core} }
