package node_test

import (
	"path"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("Pods of a real node", Serial, func() {
	It("of every class of service have their groups where package host finds them", func() {
		classes := map[corev1.PodQOSClass]*corev1.Pod{
			corev1.PodQOSBestEffort: test.Pod("best-effort", "10m", onNode, bestEffort),
			corev1.PodQOSBurstable:  test.Pod("burstable", "10m", test.WithContainer("side"), onNode, burstable),
			corev1.PodQOSGuaranteed: test.Pod("guaranteed", "10m", onNode, guaranteed),
		}
		for _, p := range classes {
			env.ExpectApplied(p)
		}
		for class, p := range classes {
			eventuallyRunning(p)
			Expect(p.Status.QOSClass).To(Equal(class))
			for _, c := range p.Spec.Containers {
				group := groupOf(p, c.Name)
				_, id, _ := strings.Cut(containerID(p, c.Name), "://")
				Expect(group).To(HavePrefix(env.Node.Group() + "/"))
				Expect(path.Base(group)).To(Equal(id))
				Expect(processes(group)).To(HaveLen(1), "processes of %s/%s", p.Name, c.Name)
			}
		}
	})
})
