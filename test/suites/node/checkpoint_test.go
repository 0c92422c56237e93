package node_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// countPort is where containers of these scenarios tell their count, each in a network of its own.
const countPort = "8080"

// told is what such a container tells: who it is, and how far it has counted.
type told struct{ Self, Count int64 }

// ask asks a pod, which may not answer.
func ask(ip string) (told, error) {
	client := &http.Client{Timeout: 300 * time.Millisecond}
	request, err := http.NewRequestWithContext(env, http.MethodGet, "http://"+net.JoinHostPort(ip, countPort)+"/", nil)
	if err != nil {
		return told{}, err
	}
	request.Close = true
	response, err := client.Do(request)
	if err != nil {
		return told{}, err
	}
	defer response.Body.Close()
	var t told
	return t, json.NewDecoder(response.Body).Decode(&t)
}

// eventuallyAnswers expects the pod to answer, and returns what it tells. It has 300 ms for one answer, which a busy machine may take.
func eventuallyAnswers(p *corev1.Pod) (t told) {
	GinkgoHelper()
	Eventually(func() (err error) { t, err = ask(p.Status.PodIP); return err }).Should(Succeed(), "%s should answer", p.Name)
	return t
}

// counting is a pod that counts in memory on the node.
func counting(name, node string) *corev1.Pod {
	return test.Pod(name, "10m", onNode, func(t *test.PodTemplate) {
		t.Spec.HostNetwork, t.Spec.NodeName = false, node
		t.Spec.Containers[0].Args = []string{"--listen=:" + countPort}
	})
}

// expectCounting applies the pod, waits until it answers, and returns what it tells.
func expectCounting(p *corev1.Pod) told {
	GinkgoHelper()
	env.ExpectApplied(p)
	eventuallyRunning(p)
	return eventuallyAnswers(p)
}

// eventuallyCapable expects the agents of both nodes to say what they can do about the state of containers.
func eventuallyCapable() {
	GinkgoHelper()
	for _, name := range []string{environment.RealNodeName, environment.SecondNodeName} {
		Eventually(func(g Gomega) {
			rt := &mckubev1alpha1.RTNode{}
			g.Expect(env.Client.Get(env, client.ObjectKey{Name: name}, rt)).To(Succeed())
			g.Expect(rt.Status.Checkpoint).NotTo(BeNil())
		}).Should(Succeed(), name)
	}
}

// checkpointOf is the NodeCheckpoint by which the pod goes.
func checkpointOf(p *corev1.Pod, to string) *mckubev1alpha1.NodeCheckpoint {
	return &mckubev1alpha1.NodeCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: mckubev1alpha1.NodeCheckpointSpec{
			PodNamespace: p.Namespace, PodName: p.Name, PodUID: p.UID, Containers: []mckubev1alpha1.CheckpointedContainer{{Name: "app"}},
			SourceNode: p.Spec.NodeName, TargetNode: to, Stage: mckubev1alpha1.StageCheckpoint, Expires: metav1.NewTime(time.Now().Add(5 * time.Minute)),
		},
	}
}

// stage lets the agents go on.
func stage(nc *mckubev1alpha1.NodeCheckpoint, to mckubev1alpha1.CheckpointStage) {
	GinkgoHelper()
	before := nc.DeepCopy()
	nc.Spec.Stage = to
	Expect(env.Client.Patch(env, nc, client.MergeFrom(before))).To(Succeed())
}

// eventuallySide expects one side of the NodeCheckpoint to come to a state, and reads it back.
func eventuallySide(nc *mckubev1alpha1.NodeCheckpoint, side func() *mckubev1alpha1.CheckpointSide, state mckubev1alpha1.CheckpointState) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(nc), nc)).To(Succeed())
		now := side()
		g.Expect(now).NotTo(BeNil())
		if state != mckubev1alpha1.CheckpointFailed && now.State == mckubev1alpha1.CheckpointFailed {
			StopTrying("it has failed: " + now.Message).Now()
		}
		g.Expect(now.State).To(Equal(state), now.Message)
	}).WithPolling(20 * time.Millisecond).Should(Succeed())
}

// copyOf is the pod that is restored from what the target's runtime has.
func copyOf(p *corev1.Pod, nc *mckubev1alpha1.NodeCheckpoint) *corev1.Pod {
	restored := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "-restored", Labels: p.Labels}, Spec: *p.Spec.DeepCopy()}
	restored.Spec.NodeName = nc.Spec.TargetNode
	for i := range restored.Spec.Containers {
		for _, a := range nc.Status.Target.Archives {
			if a.Container == restored.Spec.Containers[i].Name {
				restored.Spec.Containers[i].Image = a.Image
			}
		}
	}
	return restored
}

// archives are the files of checkpoints on a node.
func archives(n *localnode.Node) []string {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(n.KubeletDir(), "checkpoints", "*"))
	Expect(err).NotTo(HaveOccurred())
	return files
}

var _ = Describe("What is in the memory of a pod", Serial, Ordered, func() {
	var second *localnode.Node
	var agent *environment.NodeAgent

	BeforeAll(func() { second, agent = env.ExpectSecondNode() })

	BeforeEach(func() {
		env.NodeAgent.ExpectRunning()
		agent.ExpectRunning()
		eventuallyCapable()
	})

	It("is told of each node whether it can be taken along", func() {
		for _, node := range []string{environment.RealNodeName, environment.SecondNodeName} {
			Eventually(func(g Gomega) {
				rt := &mckubev1alpha1.RTNode{}
				g.Expect(env.Client.Get(env, client.ObjectKey{Name: node}, rt)).To(Succeed())
				g.Expect(rt.Status.Checkpoint).NotTo(BeNil())
				g.Expect(*rt.Status.Checkpoint).To(And(
					HaveField("Driver", "cri"), HaveField("Checkpoints", true), HaveField("Restores", true), HaveField("Runtime", "containerd 2.3.7"),
					HaveField("CRIU", "4.2.1"), HaveField("Kernel", Not(BeEmpty())), HaveField("Message", ""),
				))
			}).Should(Succeed(), node)
		}
	})

	It("goes to another node, where the pod counts on", func() {
		p := counting("counting", environment.RealNodeName)
		first := expectCounting(p)
		nc := checkpointOf(p, environment.SecondNodeName)
		source := func() *mckubev1alpha1.CheckpointSide { return nc.Status.Source }
		target := func() *mckubev1alpha1.CheckpointSide { return nc.Status.Target }

		var last told
		Eventually(func(g Gomega) {
			var err error
			last, err = ask(p.Status.PodIP)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(last.Count).To(BeNumerically(">", first.Count+5))
		}).Should(Succeed())

		began := time.Now()
		Expect(env.Client.Create(env, nc)).To(Succeed())
		eventuallySide(nc, source, mckubev1alpha1.CheckpointCheckpointed)
		checkpointed := time.Now()
		_, err := ask(p.Status.PodIP)
		Expect(err).To(HaveOccurred(), "the source is paused")
		files := archives(env.Node)
		Expect(files).To(HaveLen(1))
		info, err := os.Stat(files[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
		Expect(nc.Status.Source.Archives).To(HaveLen(1))
		Expect(nc.Status.Source.Archives[0].Bytes).To(Equal(info.Size()))

		stage(nc, mckubev1alpha1.StageTransfer)
		eventuallySide(nc, target, mckubev1alpha1.CheckpointTransferred)
		transferred := time.Now()
		restored := copyOf(p, nc)
		Expect(env.AsController().Create(env, restored)).To(Succeed(), "nobody else may make pods of archives")
		var after told
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(restored), restored)).To(Succeed())
			g.Expect(restored.Status.PodIP).NotTo(BeEmpty())
			after, err = ask(restored.Status.PodIP)
			g.Expect(err).NotTo(HaveOccurred())
		}).WithPolling(10 * time.Millisecond).Should(Succeed())
		answered := time.Now()
		Expect(after.Self).To(Equal(first.Self), "it is the same program")
		Expect(after.Count).To(And(BeNumerically(">=", last.Count), BeNumerically("<", last.Count+50)))
		unavailable := answered.Sub(nc.Status.Source.StoppedTime.Time)
		AddReportEntry("migration", fmt.Sprintf("checkpoint %v, transfer and import %v, restore %v, unavailable %v, archive %d bytes",
			checkpointed.Sub(began).Round(time.Millisecond), transferred.Sub(checkpointed).Round(time.Millisecond),
			answered.Sub(transferred).Round(time.Millisecond), unavailable.Round(time.Millisecond), info.Size()), ReportEntryVisibilityAlways)

		By("the runtime telling that it was restored, and not begun anew")
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(nc), nc)).To(Succeed())
			g.Expect("containerd://" + nc.Status.Target.Archives[0].Restored).To(Equal(firstContainer(g, restored)))
		}).Should(Succeed())
		_, err = ask(p.Status.PodIP)
		Expect(err).To(HaveOccurred(), "there are never two of them")

		By("releasing it: archives go, and the source's pod ends")
		stage(nc, mckubev1alpha1.StageRelease)
		eventuallySide(nc, source, mckubev1alpha1.CheckpointReleased)
		eventuallySide(nc, target, mckubev1alpha1.CheckpointReleased)
		Eventually(func() []string { return archives(env.Node) }).Should(BeEmpty())
		env.ExpectDeleted(p)
		env.EventuallyGone(p)
		Expect(eventuallyAnswers(restored).Self).To(Equal(first.Self))

		By("ending it: a container that is made after the release begins anew")
		for _, pid := range processes(groupOf(restored, "app")) {
			Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		}
		Eventually(func(g Gomega) {
			anew, err := ask(restored.Status.PodIP)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(anew.Self).NotTo(Equal(first.Self))
		}).Should(Succeed())
		Expect(env.Client.Delete(env, nc)).To(Succeed())
	})

	It("stays where it is when the NodeCheckpoint is discarded, deleted or expires", func() {
		p := counting("staying", environment.RealNodeName)
		first := expectCounting(p)
		for what, ends := range map[string]func(*mckubev1alpha1.NodeCheckpoint){
			"discarded": func(nc *mckubev1alpha1.NodeCheckpoint) { stage(nc, mckubev1alpha1.StageDiscard) },
			"deleted":   func(nc *mckubev1alpha1.NodeCheckpoint) { Expect(env.Client.Delete(env, nc)).To(Succeed()) },
			"expired": func(nc *mckubev1alpha1.NodeCheckpoint) {
				before := nc.DeepCopy()
				nc.Spec.Expires = metav1.NewTime(time.Now())
				Expect(env.Client.Patch(env, nc, client.MergeFrom(before))).To(Succeed())
			},
		} {
			By(what)
			nc := checkpointOf(p, environment.SecondNodeName)
			nc.Name += "-" + what
			Expect(env.Client.Create(env, nc)).To(Succeed())
			eventuallySide(nc, func() *mckubev1alpha1.CheckpointSide { return nc.Status.Source }, mckubev1alpha1.CheckpointCheckpointed)
			_, err := ask(p.Status.PodIP)
			Expect(err).To(HaveOccurred())
			ends(nc)
			Eventually(func(g Gomega) {
				now, err := ask(p.Status.PodIP)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(now.Self).To(Equal(first.Self))
				g.Expect(archives(env.Node)).To(BeEmpty())
			}).Should(Succeed(), "the source runs on when it is %s", what)
		}
		Expect(eventuallyAnswers(p).Count).To(BeNumerically(">", first.Count))
	})

	It("stays where it is when its archive is spoilt on the way, and the agents are killed meanwhile", func() {
		p := counting("spoilt", environment.RealNodeName)
		first := expectCounting(p)
		nc := checkpointOf(p, environment.SecondNodeName)
		Expect(env.Client.Create(env, nc)).To(Succeed())
		eventuallySide(nc, func() *mckubev1alpha1.CheckpointSide { return nc.Status.Source }, mckubev1alpha1.CheckpointCheckpointed)

		By("killing both agents: the pod stays paused, and those that come after go on")
		env.NodeAgent.Agent.Kill9()
		agent.Agent.Kill9()
		for _, file := range archives(env.Node) {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			content[len(content)/2] ^= 1
			Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
		}
		stage(nc, mckubev1alpha1.StageTransfer)
		_, err := ask(p.Status.PodIP)
		Expect(err).To(HaveOccurred())
		env.NodeAgent.ExpectRunning()
		agent.ExpectRunning()
		eventuallySide(nc, func() *mckubev1alpha1.CheckpointSide { return nc.Status.Target }, mckubev1alpha1.CheckpointFailed)
		Expect(nc.Status.Target.Message).To(ContainSubstring("the archive is corrupt"))
		stage(nc, mckubev1alpha1.StageDiscard)
		eventuallyItself(p, first)
		Eventually(func() []string { return archives(env.Node) }).Should(BeEmpty())
	})

	It("goes to another node by a PodMigration", func() {
		p := counting("migrated", environment.RealNodeName)
		first := expectCounting(p)
		pm := migration(p, environment.SecondNodeName)
		Expect(env.Client.Create(env, pm)).To(Succeed())
		eventuallyOver(pm, mckubev1alpha1.MigrationSucceeded)
		Expect(pm.Status.Strategy).To(Equal(mckubev1alpha1.StrategyCheckpoint))
		restored := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: pm.Status.Target.PodName}}
		Expect(env.Client.Get(env, client.ObjectKeyFromObject(restored), restored)).To(Succeed())
		Expect(restored.Spec.NodeName).To(Equal(environment.SecondNodeName))
		after := eventuallyAnswers(restored)
		Expect(after.Self).To(Equal(first.Self))
		Expect(after.Count).To(BeNumerically(">", first.Count))
		env.EventuallyGone(p)
		Expect(pm.Status.UnavailableMilliseconds).NotTo(BeNil())
		AddReportEntry("migration", fmt.Sprintf("unavailable %d ms by the PodMigration: %s", *pm.Status.UnavailableMilliseconds, pm.Status.Message), ReportEntryVisibilityAlways)
		Eventually(func() []string { return archives(env.Node) }).Should(BeEmpty())
	})

	It("goes there, and back", func() {
		p := counting("traveller", environment.RealNodeName)
		first := expectCounting(p)
		for i, to := range []string{environment.SecondNodeName, environment.RealNodeName} {
			pm := migration(p, to)
			pm.Name = fmt.Sprintf("trip-%d", i)
			Expect(env.Client.Create(env, pm)).To(Succeed())
			eventuallyOver(pm, mckubev1alpha1.MigrationSucceeded)
			p = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: pm.Status.Target.PodName}}
			Expect(env.Client.Get(env, client.ObjectKeyFromObject(p), p)).To(Succeed())
			Expect(p.Spec.NodeName).To(Equal(to))
			eventuallyItself(p, first)
		}
	})

	It("goes though the name is gone by which the runtime knows its image", func() { goesWithoutTheNameOfItsImage(second) })

	It("stays by a PodMigration that cannot be restored", func() {
		p := counting("rolled-back", environment.RealNodeName)
		p.Spec.Containers[0].Image = environment.FirstNodeImage
		first := expectCounting(p)
		pm := migration(p, environment.SecondNodeName)
		pm.Spec.Timeout = &metav1.Duration{Duration: 15 * time.Second}
		Expect(env.Client.Create(env, pm)).To(Succeed())
		eventuallyOver(pm, mckubev1alpha1.MigrationRolledBack)
		eventuallyItself(p, first)
		Eventually(func() []string { return archives(env.Node) }).Should(BeEmpty())
		pods := &corev1.PodList{}
		Expect(env.Client.List(env, pods, client.InNamespace(p.Namespace))).To(Succeed())
		Expect(pods.Items).To(HaveLen(1), "nothing is left of the copy")
		AddReportEntry("migration", "rolled back: "+pm.Status.Message, ReportEntryVisibilityAlways)
	})

	It("stays by a PodMigration to a node on which the image's name means another one", func() {
		p := counting("misfit", environment.RealNodeName)
		p.Spec.Containers[0].Image = environment.UnlikeImage
		first := expectCounting(p)
		pm := migration(p, environment.SecondNodeName)
		Expect(env.Client.Create(env, pm)).To(Succeed())
		eventuallyOver(pm, mckubev1alpha1.MigrationRolledBack)
		Expect(pm.Status.Message).To(And(ContainSubstring("has no image sha256:"), ContainSubstring(environment.UnlikeImage)))
		eventuallyItself(p, first)
		Eventually(func() []string { return archives(env.Node) }).Should(BeEmpty())
		AddReportEntry("migration", "rolled back: "+pm.Status.Message, ReportEntryVisibilityAlways)
	})

	It("of a real-time pod goes along with its policy, budget and core", func() {
		m := promised("rt-moved", test.GovernsWorkload("rt-moved"))
		p := loaded("rt-moved")
		p.Spec.HostNetwork = false
		p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, "--listen=:"+countPort)
		cordoned(environment.SecondNodeName, true)
		group := governed(m, p)
		cordoned(environment.SecondNodeName, false)
		expectKept(p, "app", group)
		first := eventuallyAnswers(p)
		// Both nodes have one kernel, whose groups share one pot. For a window of a minute the first node's level keeps beside the pod's budget
		// what may be left over of a former, larger one.
		Eventually(func(g Gomega) {
			rt := env.RTNode(environment.SecondNodeName)
			g.Expect(rt.Status.Cores).To(HaveLen(1))
			g.Expect(rt.Status.Cores[0].CapacityPpm).To(BeNumerically(">", 500_000))
		}).Should(Succeed())

		pm := migration(p, environment.SecondNodeName)
		Expect(env.Client.Create(env, pm)).To(Succeed())
		eventuallyOver(pm, mckubev1alpha1.MigrationSucceeded)
		restored := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: pm.Status.Target.PodName}}
		eventuallyRunning(restored)
		after := eventuallyAnswers(restored)
		Expect(after.Self).To(Equal(first.Self))
		Expect(after.Count).To(BeNumerically(">", first.Count))
		moved := groupOf(restored, "app")
		Expect(moved).To(HavePrefix(second.Group() + "/"))
		Expect(realtimeThreads(moved)).To(HaveLen(1), "the thread has SCHED_FIFO")
		Eventually(func() int64 { return budget(moved) }).Should(Equal(int64(low)), "raised, or with what is left of the core's former user, for a while")
		Eventually(func(g Gomega) {
			rt := env.RTNode(environment.SecondNodeName)
			g.Expect(rt.Spec.Servers).To(HaveLen(1))
			g.Expect(rt.Spec.Servers[0].PodUID).To(Equal(restored.UID))
			g.Expect(cores(moved)).To(Equal(itoa(rt.Spec.Servers[0].Cores[0])))
			g.Expect(rt.Status.Servers).To(HaveLen(1))
			g.Expect(rt.Status.Servers[0].BudgetUs).To(Equal(int64(low)))
		}).Should(Succeed())
		AddReportEntry("migration", fmt.Sprintf("real-time: unavailable %d ms, %s", *pm.Status.UnavailableMilliseconds, pm.Status.Message), ReportEntryVisibilityAlways)
	})
})

// migration is a PodMigration that takes the pod's state along.
func migration(p *corev1.Pod, to string) *mckubev1alpha1.PodMigration {
	return &mckubev1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		Spec:       mckubev1alpha1.PodMigrationSpec{PodName: p.Name, TargetNode: to, Strategy: mckubev1alpha1.StrategyCheckpoint},
	}
}

// eventuallyOver expects the migration to end so, and reads it back.
func eventuallyOver(pm *mckubev1alpha1.PodMigration, phase mckubev1alpha1.MigrationPhase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(pm), pm)).To(Succeed())
		if pm.Status.Phase.Over() && pm.Status.Phase != phase {
			StopTrying(fmt.Sprintf("it is %s: %s %v", pm.Status.Phase, pm.Status.Message, pm.Status.Conditions)).Now()
		}
		g.Expect(pm.Status.Phase).To(Equal(phase), pm.Status.Message)
	}).Should(Succeed())
}

// eventuallyItself expects the pod to answer as who it was, further than it had come.
func eventuallyItself(p *corev1.Pod, was told) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now, err := ask(p.Status.PodIP)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(now.Self).To(Equal(was.Self))
		g.Expect(now.Count).To(BeNumerically(">", was.Count))
	}).Should(Succeed())
}

// cordoned sets whether pods come to the node.
func cordoned(name string, yes bool) {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(env.Client.Get(env, client.ObjectKey{Name: name}, node)).To(Succeed())
	before := node.DeepCopy()
	node.Spec.Unschedulable = yes
	Expect(env.Client.Patch(env, node, client.MergeFrom(before))).To(Succeed())
	tainted := ContainElement(HaveField("Key", corev1.TaintNodeUnschedulable))
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKey{Name: name}, node)).To(Succeed())
		g.Expect(tainted.Match(node.Spec.Taints)).To(Equal(yes))
	}).Should(Succeed(), "the control plane taints a node that is cordoned")
}

// firstContainer is the ID of the pod's first container, once it has one.
func firstContainer(g Gomega, p *corev1.Pod) string {
	g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(p), p)).To(Succeed())
	g.Expect(p.Status.ContainerStatuses).NotTo(BeEmpty())
	return p.Status.ContainerStatuses[0].ContainerID
}
