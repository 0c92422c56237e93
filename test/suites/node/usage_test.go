package node_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

var _ = Describe("What a node and its pods use", Serial, func() {
	It("is read from a metrics-server", func() {
		p := counting("measured", environment.RealNodeName)
		expectCounting(p)
		node := &corev1.Node{}
		Expect(env.Client.Get(env, client.ObjectKey{Name: environment.RealNodeName}, node)).To(Succeed())
		source := &usage.MetricsAPI{Reader: env.ExpectMetricsServer()}
		Eventually(func(g Gomega) {
			nodes, err := source.Nodes(env, []*corev1.Node{node})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(nodes).To(HaveKey(node.Name))
			for what, value := range map[string]usage.Value{"CPU": nodes[node.Name].CPU, "memory": nodes[node.Name].Memory} {
				g.Expect(value.Known()).To(BeTrue(), what)
				g.Expect(value.At).To(BeTemporally("~", time.Now(), time.Minute), what)
				g.Expect(value.Ratio).To(And(BeNumerically(">", 0), BeNumerically("<", 2)), what)
			}
			pods, err := source.Pods(env)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods).To(HaveKey(client.ObjectKeyFromObject(p)))
			used := pods[client.ObjectKeyFromObject(p)]
			g.Expect(used.Memory).To(And(BeNumerically(">", 1<<16), BeNumerically("<", 1<<28)), "bytes of a small program")
			g.Expect(used.CPU).To(And(BeNumerically(">", 0), BeNumerically("<", 0.5)), "cores")
		}).Should(Succeed(), "after its second round of ten seconds")
	})
})
