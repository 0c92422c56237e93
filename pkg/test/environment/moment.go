package environment

import (
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
)

// momentPoll is short: it is how precisely a moment between two writes is met.
const momentPoll = 5 * time.Millisecond

// Random returns a source of random numbers that a run with the same --seed repeats.
func Random() *rand.Rand {
	seed := GinkgoRandomSeed()
	AddReportEntry("random numbers: ginkgo --seed", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // moments of tests, not secrets
}

// EventuallyWrites waits until n more versions of Nodes, NodeClaims, Pods and Events have been
// written. Counting writes and not time, a scenario can stop at any of the steps that a controller
// takes, on fast machines and slow ones alike.
func (env *Environment) EventuallyWrites(n int) {
	GinkgoHelper()
	before := env.recorder.Size()
	Eventually(env.recorder.Size).WithPolling(momentPoll).Should(BeNumerically(">=", before+n), "versions on record")
}
