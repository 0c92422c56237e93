package node_test

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var _ = Describe("A local cluster with real nodes", Serial, func() {
	const reference = "mainspring.local/counter:1"

	BeforeEach(func() {
		env.NodeAgent.Agent.ExpectStopped()
		env.NodeAgent.FastPath.ExpectStopped()
	})

	It("is started by one command, runs an image of a program of this machine, and moves a pod with what it has in memory", func() {
		cluster := env.ExpectLocalCluster("--real-nodes=2")
		archive := filepath.Join(GinkgoT().TempDir(), "counter.tar")
		Expect(cluster.ExpectCommand("local", "image", "--reference="+reference, "--output="+archive, env.LoadProgram)).To(ContainSubstring(reference))
		imported := cluster.ExpectCommand("local", "import", cluster.Dir, archive)
		Expect(strings.Count(imported, reference)).To(Equal(2), "each node has the image: %s", imported)

		source := test.Pod("counter", "10m", func(t *test.PodTemplate) {
			t.Spec.Containers[0].Image, t.Spec.Containers[0].ImagePullPolicy = reference, corev1.PullNever
			t.Spec.Containers[0].Args = []string{"--listen=:" + countPort}
		})
		Expect(cluster.Client.Create(env, source)).To(Succeed())
		before := eventuallyTells(cluster, source, 5)

		out := cluster.ExpectCommand("migrate", source.Name, "--namespace="+source.Namespace, "--strategy=Checkpoint", "--wait")
		Expect(out).To(ContainSubstring("(Checkpoint)"))
		pods := &corev1.PodList{}
		Expect(cluster.Client.List(env, pods, client.InNamespace(source.Namespace), client.HasLabels{test.Label})).To(Succeed())
		for _, p := range pods.Items {
			if p.UID == source.UID {
				continue
			}
			Expect(p.Spec.NodeName).NotTo(Equal(source.Spec.NodeName))
			after := eventuallyTells(cluster, &p, before.Count)
			Expect(after.Self).To(Equal(before.Self), "it is the same program")
			return
		}
		Fail("no pod is in the place of the one that was moved: " + out)
	})
})

// eventuallyTells expects the pod to have counted that far, reads it back, and returns what it tells.
func eventuallyTells(cluster *environment.LocalCluster, p *corev1.Pod, atLeast int64) (t told) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(cluster.Client.Get(env, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.PodIP).NotTo(BeEmpty(), "pod %s: %+v", p.Name, p.Status)
		var err error
		t, err = ask(p.Status.PodIP)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(t.Count).To(BeNumerically(">=", atLeast))
	}).Should(Succeed())
	return t
}
