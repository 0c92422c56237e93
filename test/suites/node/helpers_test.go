package node_test

import (
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var machine = host.New("/")

// onNode makes pods such as the real node can run: with the machine's network and the image that was
// imported, and with time to end.
func onNode(t *test.PodTemplate) {
	grace := int64(1)
	t.Spec.TerminationGracePeriodSeconds = &grace
	t.Spec.HostNetwork = true
	for i := range t.Spec.Containers {
		c := &t.Spec.Containers[i]
		c.Image, c.ImagePullPolicy = environment.LoadImage, corev1.PullNever
	}
}

// The three classes of quality of service.
func bestEffort(t *test.PodTemplate) {
	for i := range t.Spec.Containers {
		t.Spec.Containers[i].Resources = corev1.ResourceRequirements{Claims: t.Spec.Containers[i].Resources.Claims}
	}
}

func burstable(t *test.PodTemplate) {
	for i := range t.Spec.Containers {
		t.Spec.Containers[i].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	}
}

func guaranteed(t *test.PodTemplate) {
	for i := range t.Spec.Containers {
		all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
		t.Spec.Containers[i].Resources.Requests, t.Spec.Containers[i].Resources.Limits = all, all
	}
}

// eventuallyRunning expects every container of the pod to run on the real node, and reads the pod back.
func eventuallyRunning(p *corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.ContainerStatuses).To(HaveLen(len(p.Spec.Containers)))
		for _, s := range p.Status.ContainerStatuses {
			g.Expect(s.State.Running).NotTo(BeNil(), "container %s: %v", s.Name, s.State)
		}
	}).Should(Succeed(), "pod %s should run", p.Name)
}

// containerID is the ID of the pod's container as its status tells it.
func containerID(p *corev1.Pod, container string) string {
	GinkgoHelper()
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container {
			return s.ContainerID
		}
	}
	Fail("pod " + p.Name + " has no container " + container)
	return ""
}

// groupOf is the control group of the pod's container.
func groupOf(p *corev1.Pod, container string) string {
	GinkgoHelper()
	group, err := machine.ContainerGroup(string(p.UID), containerID(p, container))
	Expect(err).NotTo(HaveOccurred())
	return group
}

func itoa[T int32 | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// governedNothing is the group of an ordinary pod's container.
func governedNothing(name string) string {
	GinkgoHelper()
	p := test.Pod(name, "10m", onNode)
	env.ExpectApplied(p)
	eventuallyRunning(p)
	return groupOf(p, "app")
}
