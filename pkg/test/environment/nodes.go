package environment

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// EventuallyNodes expects the cluster to settle at exactly n machines: n NodeClaims, none on its way
// out, each with an initialised and ready Node. It returns the Nodes by name. Options narrow it, for
// example OfPool.
func (env *Environment) EventuallyNodes(n int, options ...client.ListOption) []*corev1.Node {
	GinkgoHelper()
	var nodes []*corev1.Node
	Eventually(func(g Gomega) {
		claims := env.nodeClaims(g, options...)
		g.Expect(summary(claims)).To(HaveLen(n))
		nodes = env.nodes(g, options...)
		g.Expect(nodes).To(HaveLen(n))
		for _, c := range claims {
			g.Expect(history.IsInitialized(c)).To(BeTrue(), "NodeClaim %s is not initialised", c.Name)
			g.Expect(c.DeletionTimestamp.IsZero()).To(BeTrue(), "NodeClaim %s is being deleted", c.Name)
		}
		for _, node := range nodes {
			g.Expect(isReady(node)).To(BeTrue(), "Node %s is not ready", node.Name)
			g.Expect(history.IsTainted(node)).To(BeFalse(), "Node %s is being disrupted", node.Name)
		}
	}).Should(Succeed())
	return nodes
}

// EventuallyUntainted expects the Node to have no taint with the key.
func (env *Environment) EventuallyUntainted(name, key string) {
	GinkgoHelper()
	node := &corev1.Node{}
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKey{Name: name}, node)).To(Succeed())
		g.Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", key)))
	}).Should(Succeed(), "Node %s should lose taint %s", name, key)
}

// OfPool narrows to the machines of one NodePool.
func OfPool(name string) client.ListOption {
	return client.MatchingLabels{karpenterv1.NodePoolLabelKey: name}
}

// NodeClaims returns the NodeClaims as they are now, by name.
func (env *Environment) NodeClaims(options ...client.ListOption) []*karpenterv1.NodeClaim {
	GinkgoHelper()
	var claims []*karpenterv1.NodeClaim
	Eventually(func(g Gomega) { claims = env.nodeClaims(g, options...) }).Should(Succeed())
	return claims
}

// NodeClaimOf returns the NodeClaim of a Node.
func (env *Environment) NodeClaimOf(node *corev1.Node) *karpenterv1.NodeClaim {
	GinkgoHelper()
	for _, c := range env.NodeClaims() {
		if c.Status.ProviderID == node.Spec.ProviderID {
			return c
		}
	}
	Fail(fmt.Sprintf("Node %s has no NodeClaim", node.Name))
	return nil
}

func (env *Environment) nodeClaims(g Gomega, options ...client.ListOption) []*karpenterv1.NodeClaim {
	list := &karpenterv1.NodeClaimList{}
	g.Expect(env.Client.List(env, list, options...)).To(Succeed())
	return sorted(list.Items, func(c *karpenterv1.NodeClaim) string { return c.Name })
}

func (env *Environment) nodes(g Gomega, options ...client.ListOption) []*corev1.Node {
	list := &corev1.NodeList{}
	g.Expect(env.Client.List(env, list, options...)).To(Succeed())
	return sorted(list.Items, func(n *corev1.Node) string { return n.Name })
}

func sorted[T any](items []T, name func(*T) string) []*T {
	pointers := make([]*T, len(items))
	for i := range items {
		pointers[i] = &items[i]
	}
	slices.SortFunc(pointers, func(a, b *T) int { return strings.Compare(name(a), name(b)) })
	return pointers
}

// summary describes NodeClaims in failure messages.
func summary(claims []*karpenterv1.NodeClaim) []string {
	var list []string
	for _, c := range claims {
		list = append(list, describeNodeClaim(c))
	}
	return list
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// NodeClaimOnNode returns the NodeClaim of the Node of that name.
func (env *Environment) NodeClaimOnNode(node string) *karpenterv1.NodeClaim {
	GinkgoHelper()
	for _, c := range env.NodeClaims() {
		if c.Status.NodeName == node {
			return c
		}
	}
	Fail(fmt.Sprintf("Node %s has no NodeClaim", node))
	return nil
}
