package realtime_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("mainspring explain pod", func() {
	explain := func(pod string) func() string {
		return func() string { return env.ExpectCommand("explain", "pod", pod) }
	}

	It("tells why a pod is pending, with the numbers of each core", func() {
		env.ExpectApplied(twoCores(oneMachine))
		governed(test.McKube("first", 60))
		governed(test.McKube("second", 70))
		env.ExpectApplied(test.McKube("third", 60), test.RTPod("third"))
		env.EventuallyUnschedulable("third")
		// Needed are 0.6 of a core and the margin; free are 0.299 and 0.199.
		Eventually(explain("third")).Should(And(ContainSubstring("60.1 %"), ContainSubstring("29.9 %"), ContainSubstring("T1")))
	})

	It("tells on which core a pod is, by which test, and why it was moved there", func() {
		env.ExpectApplied(threeCores(oneMachine))
		place := governed(test.McKube("weak", 60, test.Prefers("2")))
		Eventually(explain("weak")).Should(And(ContainSubstring(place.Node), ContainSubstring("core 2"), ContainSubstring("T1")))
		governed(test.McKube("strong", 60, test.Critical(high), test.Prefers("2")))
		Eventually(func() int32 { return env.EventuallyPlace("weak").Core }).ShouldNot(BeEquivalentTo(2))
		Eventually(explain("weak")).Should(And(ContainSubstring("moved to core"), ContainSubstring("strong")))
	})
})
