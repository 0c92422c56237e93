package doctor

import (
	"fmt"
	"strconv"
	"time"
)

// DefaultBudgetGranularity is the controller's, of its flag --rt-budget-granularity.
const DefaultBudgetGranularity = 100 * time.Microsecond

// granularity is the one thing that a node and the controller must agree on: how late budgets end. The
// controller charges so much to every budget, and takes no node that is coarser.
func (e *exam) granularity() Finding {
	charged := e.options.Granularity
	setting := Reading{"--rt-budget-granularity of the controller", charged.String()}
	if charged == 0 {
		setting.What = "not given; its default is " + DefaultBudgetGranularity.String()
		charged = DefaultBudgetGranularity
	}
	late, known, saw := e.late()
	switch {
	case !known:
		return note("how late budgets end here is measured when the agent starts, and published as budgetGranularityUs. A controller whose --rt-budget-granularity is less than that places no real-time pod on this node",
			"compare the two when the agent runs: kubectl get rtnode <node> -o jsonpath={.status.budgetGranularityUs}").saw(saw, setting)
	case late <= charged:
		return ok(fmt.Sprintf("budgets end at most about %s late, and the controller charges %s", late, charged)).saw(saw, setting)
	}
	means := fmt.Sprintf("budgets end up to %s late here, so the node publishes budgetGranularityUs of at least %d; a controller that charges %s places no real-time pod on it: pods that a McKube governs stay Pending, \"cannot allocate all claims\"",
		late, late.Microseconds(), charged)
	mend := fmt.Sprintf("chart: settings.realtime.budgetGranularity=%s (controller: --rt-budget-granularity=%s), which charges every budget that much more; or a node whose budgets end in time: backend fifo (a kernel without RT groups), or CONFIG_HZ=1000", enough(late), enough(late))
	if e.options.Granularity > 0 {
		return problem(means, mend).saw(saw, setting)
	}
	return warning(means+". Standalone mode is not concerned", mend).saw(saw, setting)
}

// ownTimer is how late backend fifo ends a budget, which takes no notice of ticks.
const ownTimer = 100 * time.Microsecond

// late is how late budgets end at most, as far as can be read.
func (e *exam) late() (time.Duration, bool, Reading) {
	text, known, saw := e.option("CONFIG_HZ")
	switch backend := e.backend(); {
	case backend == backendBlocked:
		return 0, false, Reading{"backend", backend}
	case backend == backendFIFO:
		return ownTimer, true, Reading{"backend", backend + " ends budgets by a timer of its own"}
	case backend != backendRTGroup && e.features["HRTICK_DL"]:
		return ownTimer, true, Reading{featuresPath, "HRTICK_DL"}
	}
	hz, err := strconv.ParseInt(text, 10, 64)
	if !known || err != nil || hz <= 0 {
		return 0, false, saw
	}
	return time.Second / time.Duration(hz), true, saw
}

// enough is a round setting that holds with a quarter to spare: what the agent measures may be a little more than a tick.
func enough(late time.Duration) time.Duration {
	return (late + late/4 + time.Millisecond - 1).Truncate(time.Millisecond)
}
