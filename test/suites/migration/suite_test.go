// Package migration shows that pods leave nodes safely: each strategy with each kind of owner, what is refused and why, what
// becomes of a migration when its pod, its owner, its target or the controller goes midway, and one scenario for each fault
// of the SDI Migration Service. The promises of package promises are checked on every version of every object.
package migration_test

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var env *environment.Environment

func TestMigration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Migration")
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
