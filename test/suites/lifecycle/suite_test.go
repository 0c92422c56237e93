// Package lifecycle states what Mainspring promises about nodes, from the pod that needs one to the
// last pod that leaves it, and shows it on a real control plane with simulated machines.
package lifecycle_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var env *environment.Environment

func TestLifecycle(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Lifecycle")
}

var _ = SynchronizedBeforeSuite(
	func(ctx SpecContext) []byte { return environment.Prepare(ctx) },
	func(prepared []byte) { env = environment.Start(prepared) },
)

var _ = SynchronizedAfterSuite(func() { env.Stop() }, func() {})

var _ = BeforeEach(func() { env.BeforeEach() })

var _ = AfterEach(func() { env.AfterEach() })
