package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// measuredFile is the file for what moving pods with their memory takes, in seconds. `make bench-migration` sets it; who runs the
// suite for its own sake has nothing measured.
var measuredFile = os.Getenv("MAINSPRING_MEASURE_CHECKPOINTS")

// measuredMoves is how many pods are moved, one after the other.
const measuredMoves = 10

// taken is what the moves took: Unavailable is from the last answer of the source until the first of the copy.
type taken struct{ Unavailable, EndToEnd []float64 }

var _ = Describe("Moving pods with their memory", Serial, Ordered, func() {
	if measuredFile == "" {
		return
	}
	It("is measured", func() {
		_, agent := env.ExpectSecondNode()
		env.NodeAgent.ExpectRunning()
		agent.ExpectRunning()
		eventuallyCapable()
		var all taken
		for i := range measuredMoves {
			away, whole := measuredMove(fmt.Sprintf("measured-%d", i))
			all.Unavailable = append(all.Unavailable, away.Seconds())
			all.EndToEnd = append(all.EndToEnd, whole.Seconds())
		}
		raw, err := json.Marshal(all)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(measuredFile, raw, 0o600)).To(Succeed())
	})
})

// measuredMove moves a pod of its own, and says for how long nobody answered, and how long all of it took.
func measuredMove(name string) (away, whole time.Duration) {
	GinkgoHelper()
	const every = 5 * time.Millisecond
	p := counting(name, environment.RealNodeName)
	first := expectCounting(p)
	pm := migration(p, environment.SecondNodeName)
	began, last := time.Now(), time.Now()
	Expect(env.Client.Create(env, pm)).To(Succeed())
	Eventually(func() error {
		now := time.Now()
		_, err := ask(p.Status.PodIP)
		if err == nil {
			last = now
		}
		return err
	}).WithPolling(every).ShouldNot(Succeed(), "the source is paused")
	restored := &corev1.Pod{}
	var after told
	Eventually(func(g Gomega) {
		if restored.Status.PodIP == "" {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(pm), pm)).To(Succeed())
			g.Expect(pm.Status.Phase.Over()).To(BeFalse(), pm.Status.Message)
			g.Expect(pm.Status.Target).NotTo(BeNil())
			g.Expect(env.Client.Get(env, client.ObjectKey{Namespace: p.Namespace, Name: pm.Status.Target.PodName}, restored)).To(Succeed())
			g.Expect(restored.Status.PodIP).NotTo(BeEmpty())
		}
		var err error
		after, err = ask(restored.Status.PodIP)
		g.Expect(err).NotTo(HaveOccurred())
	}).WithPolling(every).Should(Succeed())
	away = time.Since(last)
	Expect(after.Self).To(Equal(first.Self), "it is the same program")
	eventuallyOver(pm, mckubev1alpha1.MigrationSucceeded)
	whole = time.Since(began)
	env.ExpectDeleted(restored)
	env.EventuallyGone(restored)
	return away, whole
}
