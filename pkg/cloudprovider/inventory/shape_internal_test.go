package inventory

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/driver"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// What the scheduler plans with before a machine is on is what its node's agent publishes then, with every backend: no machine is opened for a container
// that its node refuses.
func TestAMachineIsPlannedWithTheReserveThatItsAgentKeeps(t *testing.T) {
	for backend, want := range map[string]int64{"rtgroup": 50_000, "fifo": 50_000, "cfs": 50_000, "hcbs": 0, "deadline": 0} {
		layout := &v1alpha1.CoreLayout{CoresPerNUMA: 2, Housekeeping: []int32{0}, BandwidthPPM: 300_000, EscalationReservePPM: 50_000, Backend: backend}
		planned, err := rtdra.CoreOf(coreDevices(layout)[0])
		if err != nil {
			t.Fatal(err)
		}
		report := table.Report{Backend: backend, GranularityUs: 100, Cores: []table.CoreReport{{ID: 1, CapacityPpm: 300_000}}}
		offer, err := driver.OfferOf(report, []host.Core{{ID: 0, Sibling: -1, Online: true}, {ID: 1, Sibling: -1, Online: true}}, 50_000)
		if err != nil || len(offer.Cores) != 1 {
			t.Fatalf("%s: %+v %v", backend, offer, err)
		}
		if planned != offer.Cores[0] || int64(planned.EscalationReserve) != want {
			t.Errorf("%s: planned with %+v, and the agent publishes %+v", backend, planned, offer.Cores[0])
		}
	}
}
