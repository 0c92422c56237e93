package fastpath_test

import (
	"errors"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
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
