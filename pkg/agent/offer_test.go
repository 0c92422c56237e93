package agent_test

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// When nothing may be offered any more, because all cores that are left take real-time work, the driver hears of it, too, and withdraws what it
// has published.
func TestAnOfferIsWithdrawn(t *testing.T) {
	machine := host.Topology{Cores: []host.Core{{ID: 0, Sibling: -1, Online: true}, {ID: 1, Sibling: -1, Online: true}}}
	report := table.Report{Instance: "one", Backend: "rtgroup", Cores: []table.CoreReport{{ID: 1, CapacityPpm: 900_000}}}
	updates := 0
	update := func(table.Report) error { updates++; return nil }
	if cores := agent.Offer(report, machine, clock.RealClock{}, update); len(cores) != 1 || updates != 1 {
		t.Errorf("%d cores are offered in %d updates; want one", len(cores), updates)
	}
	machine.Cores[0].Online = false
	if cores := agent.Offer(report, machine, clock.RealClock{}, update); len(cores) != 0 || updates != 2 {
		t.Errorf("the host has no core: %d cores are offered in %d updates; want none, told to the driver", len(cores), updates)
	}
}
