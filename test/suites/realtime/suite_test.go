// Package realtime states what Mainspring promises to containers with a real-time budget, from the
// McKube that asks for it to the core that keeps it, and shows it on a real control plane with
// simulated machines. Whatever a scenario is about, the promises of package promises are checked on
// every version of every object that it leaves on record.
package realtime_test

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var env *environment.Environment

func TestRealtime(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Realtime")
}

var _ = SynchronizedBeforeSuite(
	func(ctx SpecContext) []byte { return environment.Prepare(ctx) },
	func(prepared []byte) {
		catalogue, err := filepath.Abs(filepath.Join("testdata", "catalogue.yaml"))
		Expect(err).NotTo(HaveOccurred())
		env = environment.StartRealtime(prepared, catalogue)
	},
)

var _ = SynchronizedAfterSuite(func() { env.Stop() }, func() {})

var _ = BeforeEach(func() { env.BeforeEach() })

// Failed or not, a scenario has to keep the promises; the nodes that it used go afterwards.
var _ = AfterEach(func() {
	defer env.AfterEach()
	env.ExpectPromisesKept()
})
