// Package ladder shows that real-time pressure is answered by one system, from a raised budget to a replaced
// node: each rung alone, the whole climb in one story, and what becomes of it on bad days. The promises of
// package promises are checked on every version of every object that a scenario leaves on record, and when it is
// over nothing is left tainted, reserved, pressured or half done.
package ladder_test

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var env *environment.Environment

func TestLadder(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Ladder")
}

var _ = SynchronizedBeforeSuite(
	func(ctx SpecContext) []byte { return environment.Prepare(ctx) },
	func(prepared []byte) {
		catalogue, err := filepath.Abs(filepath.Join("testdata", "catalogue.yaml"))
		Expect(err).NotTo(HaveOccurred())
		buffers := map[string]any{"settings": map[string]any{"featureGates": map[string]any{"capacityBuffer": true}}} // for headroom
		env = environment.StartRealtimeWith(prepared, catalogue, buffers, shortDelays()...)
	},
)

var _ = SynchronizedAfterSuite(func() { env.Stop() }, func() {})

var _ = BeforeEach(func() { env.BeforeEach() })

// Failed or not, a scenario has to keep the promises; the nodes that it used go afterwards.
var _ = AfterEach(func() {
	defer env.AfterEach()
	env.ExpectPromisesKept()
})
