package environment

import (
	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/test"
)

// EventuallyPodsBound expects the workload to have exactly n pods in all namespaces, all running on
// nodes, and returns them by name.
func (env *Environment) EventuallyPodsBound(workload string, n int) []*corev1.Pod {
	GinkgoHelper()
	var pods []*corev1.Pod
	Eventually(func(g Gomega) {
		pods = env.pods(g, workload)
		g.Expect(pods).To(HaveLen(n))
		for _, p := range pods {
			g.Expect(p.Spec.NodeName).NotTo(BeEmpty(), "pod %s is not bound", p.Name)
			g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning), "pod %s", p.Name)
			g.Expect(p.DeletionTimestamp.IsZero()).To(BeTrue(), "pod %s is being deleted", p.Name)
		}
	}).Should(Succeed())
	return pods
}

// Pods returns the pods of the workload as they are now, by name.
func (env *Environment) Pods(workload string) []*corev1.Pod {
	GinkgoHelper()
	var pods []*corev1.Pod
	Eventually(func(g Gomega) { pods = env.pods(g, workload) }).Should(Succeed())
	return pods
}

func (env *Environment) pods(g Gomega, workload string) []*corev1.Pod {
	list := &corev1.PodList{}
	g.Expect(env.Client.List(env, list, client.MatchingLabels{test.Label: workload})).To(Succeed())
	return sorted(list.Items, func(p *corev1.Pod) string { return p.Name })
}

// NodesOf returns the names of the nodes that the pods are on, each once.
func NodesOf(pods []*corev1.Pod) []string {
	seen := map[string]bool{}
	var list []string
	for _, p := range pods {
		if !seen[p.Spec.NodeName] {
			seen[p.Spec.NodeName] = true
			list = append(list, p.Spec.NodeName)
		}
	}
	return list
}

// ExpectPending creates Deployments and waits until all their pods exist. A NodePool that is applied afterwards is asked for nodes for all of
// them at once; pods that are created while it is there come in batches of one, two and four (the controllers' slow start), each of which may get a node.
func (env *Environment) ExpectPending(deployments ...*appsv1.Deployment) {
	GinkgoHelper()
	for _, d := range deployments {
		env.ExpectApplied(d)
	}
	for _, d := range deployments {
		Eventually(func(g Gomega) { g.Expect(env.pods(g, d.Name)).To(HaveLen(int(*d.Spec.Replicas))) }).Should(Succeed(), "the pods of %s", d.Name)
	}
}
