package fastpath_test

import (
	"errors"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

func TestABudgetByHandThatIsRefusedIsNotGivenLater(t *testing.T) {
	k, dir := newKernel("/a", "/b", "/c"), t.TempDir()
	n := start(t, k, dir)
	n.apply(tableOf(1, high("a", "/a", 0), high("b", "/b", 0), high("c", "/c", 0)))
	if err := n.Set(client.SetRequest{Server: "a", RuntimeUs: 4_000}); err != nil {
		t.Fatal(err)
	}
	var refused *client.StatusError
	if err := n.Set(client.SetRequest{Server: "b", RuntimeUs: 4_000}); !errors.As(err, &refused) || refused.Code != 409 {
		t.Fatalf("%v; want 409, as the core has no room for both", err)
	}
	if b := n.reported("b"); b.Error != "" || b.BudgetUs != 2_000 {
		t.Errorf("after the refusal: budget %d us, error %q; want it as it was", b.BudgetUs, b.Error)
	}
	if err := n.Set(client.SetRequest{Server: "a", RuntimeUs: 2_000}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		n.now.Add(1_000_000_000)
		n.sweep()
	}
	if got := k.groups["/b"].budgetUs; got != 2_000 {
		t.Errorf("budget %d us once there is room; want 2000: it was refused", got)
	}
	n.end()
	n = start(t, k, dir)
	n.sweep()
	if got := k.groups["/b"].budgetUs; got != 2_000 {
		t.Errorf("budget %d us after a restart; want 2000: it was refused", got)
	}
}

// A budget that the plan has room for at once and the kernel refuses has cost no server anything.
func TestABudgetByHandThatTheKernelRefusesCostsNoServerAnything(t *testing.T) {
	k := newKernel("/a", "/b", "/low")
	k.policy = actuator.PolicyEDF
	n := start(t, k, t.TempDir())
	low := high("low", "/low", 0)
	low.Criticality, low.LowUs, low.LeastUs, low.HighUs = "Low", 500, 500, 500
	full := tableOf(1, high("a", "/a", 0), high("b", "/b", 0), low)
	full.Plans[0].Raise, full.Plans[0].Squeeze = full.Plans[0].Raise[1:2], []table.Squeeze{{ID: "low", FloorUs: 100}}
	n.apply(full)
	n.send(0, n.programs.event(101, ebpf.KindAlarm, n.now.Load()))
	k.groups["/a"].setErr = actuator.ErrNoRoom
	sets := k.groups["/b"].sets + k.groups["/low"].sets
	var refused *client.StatusError
	if err := n.Set(client.SetRequest{Server: "a", RuntimeUs: 3_000}); !errors.As(err, &refused) || refused.Code != 409 {
		t.Fatalf("%v; want 409, as the kernel refuses", err)
	}
	if b, low := k.groups["/b"], k.groups["/low"]; b.budgetUs != 4_000 || low.budgetUs != 500 || b.sets+low.sets != sets {
		t.Errorf("b has %d us, low %d us, with %d new writes; want nothing changed", b.budgetUs, low.budgetUs, b.sets+low.sets-sets)
	}
	if a := n.reported("a"); a.Error != "" || a.BudgetUs != 2_000 {
		t.Errorf("a is %+v; want it as it was", a)
	}
}
