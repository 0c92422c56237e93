package node_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/localnode"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// checkpointImages begins the names of images that are made of checkpoints.
const checkpointImages = "mainspring.local/checkpoint/"

// goesWithoutTheNameOfItsImage has the runtime of the second node record a pod's container with the name of an image that was made for another pod, takes
// that name away, and moves the pod.
func goesWithoutTheNameOfItsImage(second *localnode.Node) {
	GinkgoHelper()
	runtime, err := containerd.New(second.RuntimeSocket(), "overlayfs", clock.RealClock{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(runtime.Close)
	By("waiting until no names are left of scenarios before, which the runtime may record as well")
	Eventually(func() ([]string, error) { return runtime.Images(env, checkpointImages) }).Should(BeEmpty())

	other := counting("forerunner", environment.RealNodeName)
	expectCounting(other)
	pm := migration(other, environment.SecondNodeName)
	Expect(env.Client.Create(env, pm)).To(Succeed())
	eventuallyOver(pm, mckubev1alpha1.MigrationSucceeded)
	var name string
	Eventually(func(g Gomega) {
		names, err := runtime.Images(env, checkpointImages)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names).To(HaveLen(1))
		name = names[0]
		nc := &mckubev1alpha1.NodeCheckpointList{}
		g.Expect(env.Client.List(env, nc)).To(Succeed())
		g.Expect(nc.Items).To(BeEmpty(), "released, so that the name means what the pod was made of")
	}).Should(Succeed())

	p := counting("follower", environment.SecondNodeName)
	first := expectCounting(p)
	forerunner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: other.Namespace, Name: pm.Status.Target.PodName}}
	Expect(env.Client.Delete(env, forerunner)).To(Succeed())
	env.EventuallyGone(forerunner)
	Consistently(func() (bool, error) { return runtime.Recorded(env, name) }, "2s").Should(BeTrue(), "%s is what the runtime has recorded with the other pod's container", name)
	Expect(runtime.Remove(env, name)).To(Succeed())

	pm = migration(p, environment.RealNodeName)
	Expect(env.Client.Create(env, pm)).To(Succeed())
	eventuallyOver(pm, mckubev1alpha1.MigrationSucceeded)
	moved := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: pm.Status.Target.PodName}}
	Expect(env.Client.Get(env, client.ObjectKeyFromObject(moved), moved)).To(Succeed())
	eventuallyItself(moved, first)
	env.EventuallyGone(p)
	Eventually(func() (bool, error) { return runtime.Recorded(env, name) }).Should(BeFalse())
}
