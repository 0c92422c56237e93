package lifecycle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var _ = Describe("Binding", func() {
	It("binds pods to the node that was opened for them, and later pods to the room that is left there", func() {
		env.ExpectApplied(test.NodePool("general", test.InstanceTypes("c-4x-amd64-linux")), test.Deployment("first", 1, "1"))
		first := env.EventuallyPodsBound("first", 1)[0]
		env.EventuallyEvent(first, "Nominated", "Pod should schedule on")
		env.ExpectApplied(test.Deployment("second", 2, "1"))
		second := env.EventuallyPodsBound("second", 2)
		env.EventuallyNodes(1)
		Expect(environment.NodesOf(second)).To(ConsistOf(first.Spec.NodeName))
		Expect(env.History().Created()).To(HaveLen(1))
	})

	It("lets pods wait for a machine that is slow to join, and opens no second one for them", func() {
		env.ExpectApplied(test.NodeClass(test.RegistrationDelay(8*time.Second)), test.NodePool("general"), test.Deployment("web", 1, "1"))
		env.EventuallyPodsBound("web", 1)
		env.EventuallyNodes(1)
		Expect(env.History().Created()).To(HaveLen(1))
	})
})
