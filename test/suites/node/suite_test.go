// Package node shows the node agent at work on a real node: a real kubelet, containerd and runc on this
// machine, pods through the real API, and what the kernel says about their control groups and threads.
package node_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

var env *environment.Environment

func TestNode(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Node")
}

// The machine is one: of Ginkgo's processes the first has the node, and every spec runs there.
var _ = SynchronizedBeforeSuite(
	func(ctx SpecContext) []byte { return environment.PrepareNode(ctx) },
	func(prepared []byte) {
		if GinkgoParallelProcess() != 1 {
			return
		}
		privileged.Machine(GinkgoTB())
		env = environment.StartNode(prepared)
	},
)

var _ = SynchronizedAfterSuite(func() { env.Stop() }, func() {})

// A scenario begins on a node that is under no pressure: the one before may have left it overrun, and taints go only after a while.
var _ = BeforeEach(func() {
	env.BeforeEach()
	env.EventuallyUntainted(environment.RealNodeName, mcoperatorv1.TaintPressure)
})

var _ = AfterEach(func() { env.AfterEach() })
