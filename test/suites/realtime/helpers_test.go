package realtime_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// Criticalities, for short.
const (
	low    = mcoperatorv1.CriticalityLow
	middle = mcoperatorv1.CriticalityMiddle
	high   = mcoperatorv1.CriticalityHigh
)

// twoCores and threeCores are NodePools of machines with that many cores for real-time work.
func twoCores(changes ...func(*karpenterv1.NodePool)) *karpenterv1.NodePool {
	return test.RTNodePool("two", "two-cores", changes...)
}

func threeCores(changes ...func(*karpenterv1.NodePool)) *karpenterv1.NodePool {
	return test.RTNodePool("three", "three-cores", changes...)
}

// oneMachine keeps the pool at its first machine.
func oneMachine(p *karpenterv1.NodePool) {
	test.Limits(corev1.ResourceCPU, map[string]string{"two": "3", "three": "4", "limited": "3"}[p.Name])(p)
}

// inPool keeps pods on the machines of the pool.
func inPool(name string) func(*test.PodTemplate) {
	return test.OnNodes(karpenterv1.NodePoolLabelKey, name)
}

// governed applies a McKube and then the pod of its name, and returns where it runs in the end.
func governed(m *mcoperatorv1.McKube, changes ...func(*test.PodTemplate)) environment.Place {
	GinkgoHelper()
	env.ExpectApplied(m, test.RTPod(m.Spec.Podname, changes...))
	return env.EventuallyPlace(m.Spec.Podname)
}

// cores lists the cores of places.
func cores(places []environment.Place) []int32 {
	return lo.Map(places, func(p environment.Place, _ int) int32 { return p.Core })
}

// nodes lists the nodes of places, each once.
func nodes(places ...environment.Place) []string {
	return lo.Uniq(lo.Map(places, func(p environment.Place, _ int) string { return p.Node }))
}

// firstPod is the pod's first recorded version.
func firstPod(name string) *corev1.Pod {
	GinkgoHelper()
	key := types.NamespacedName{Namespace: test.Namespace, Name: name}
	s, ok := env.History().First(func(s history.State) bool { return s.Pods[key] != nil })
	Expect(ok).To(BeTrue(), "pod %s was never there", name)
	return s.Pods[key]
}

// eventuallyPod expects the pod's newest version to fulfil the matcher.
func eventuallyPod(name string) AsyncAssertion {
	GinkgoHelper()
	return Eventually(func(g Gomega) *corev1.Pod {
		pod := &corev1.Pod{}
		g.Expect(env.Client.Get(env, client.ObjectKey{Namespace: test.Namespace, Name: name}, pod)).To(Succeed())
		return pod
	})
}

// undisturbed expects that since the revision every version of the pod runs and none is being deleted.
func undisturbed(began uint64, pods ...*corev1.Pod) {
	GinkgoHelper()
	h := env.History().Since(began)
	for _, pod := range pods {
		h.Walk(func(s history.State) {
			p := s.Pods[client.ObjectKeyFromObject(pod)]
			Expect(p).NotTo(BeNil(), "pod %s at revision %d", pod.Name, s.Revision)
			Expect(p.UID).To(Equal(pod.UID), "pod %s at revision %d", pod.Name, s.Revision)
			Expect(p.DeletionTimestamp.IsZero()).To(BeTrue(), "pod %s at revision %d", pod.Name, s.Revision)
		})
	}
}

// serverOf returns the pod's server on any RTNode of the state, and the node's name.
func serverOf(s history.State, uid types.UID) (*mckubev1alpha1.RTServer, string) {
	for name, node := range s.RTNodes {
		for i := range node.Spec.Servers {
			if node.Spec.Servers[i].PodUID == uid {
				return &node.Spec.Servers[i], name
			}
		}
	}
	return nil, ""
}

// levels lists, in order and without repetition, the levels that the agents had in force for the pod.
func levels(h history.History, uid types.UID) []string {
	var list []string
	h.Walk(func(s history.State) {
		for _, node := range s.RTNodes {
			for _, srv := range node.Status.Servers {
				if srv.PodUID == uid && (len(list) == 0 || list[len(list)-1] != srv.Level) {
					list = append(list, srv.Level)
				}
			}
		}
	})
	return list
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

// cheapToDelete makes a ReplicaSet that shrinks choose the pod first.
func cheapToDelete(p *corev1.Pod) {
	p.Annotations = lo.Assign(p.Annotations, map[string]string{"controller.kubernetes.io/pod-deletion-cost": "-100"})
}

// granularities is what each node's agent says it enforces, in microseconds.
func granularities(s history.State) map[string]int64 {
	list := map[string]int64{}
	for name, node := range s.RTNodes {
		list[name] = node.Status.BudgetGranularityUs
	}
	return list
}

// raised counts the servers on a core of the node that are above their low budget.
func raised(s history.State, node string, core int32) int {
	n := 0
	if rt := s.RTNodes[node]; rt != nil {
		for _, srv := range rt.Status.Servers {
			if len(srv.Cores) == 1 && srv.Cores[0] == core && srv.Level != mckubev1alpha1.LevelLow {
				n++
			}
		}
	}
	return n
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// play has the agents play a script to the place's container, or to its node, from now on.
func play(place environment.Place, script string) {
	GinkgoHelper()
	env.ExpectScript(place.Pod.DeepCopy(), script)
}

func playOnNode(name, script string) {
	GinkgoHelper()
	env.ExpectScript(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, script)
}
