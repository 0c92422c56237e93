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
	"github.com/samber/lo"
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
	var t told
	Eventually(func() (err error) { t, err = ask(p.Status.PodIP); return err }).Should(Succeed(), "%s should answer", p.Name)
	return t
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
		Expect(env.Client.Create(env, restored)).To(Succeed())
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
		Expect(archives(env.Node)).To(BeEmpty())
		env.ExpectDeleted(p)
		env.EventuallyGone(p)
		again, err := ask(restored.Status.PodIP)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Self).To(Equal(first.Self))

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
		_ = second
	})

	It("stays where it is when it is discarded, expires, or cannot be restored", func() {
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
		Expect(lo.Must(ask(p.Status.PodIP)).Count).To(BeNumerically(">", first.Count))
	})
})

// firstContainer is the ID of the pod's first container, once it has one.
func firstContainer(g Gomega, p *corev1.Pod) string {
	g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(p), p)).To(Succeed())
	g.Expect(p.Status.ContainerStatuses).NotTo(BeEmpty())
	return p.Status.ContainerStatuses[0].ContainerID
}
