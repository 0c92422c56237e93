package fastpath_test

import (
	"errors"
	"strings"
	"testing"
)

// That the kernel has stopped enforcing budgets is told of the node and of every container, once in the log, and no longer than it is so.
func TestBudgetsThatAreNotEnforcedAreTold(t *testing.T) {
	log, k := logged(t), newKernel("/a")
	n := start(t, k, t.TempDir())
	n.apply(tableOf(1, high("a", "/a", 0)))
	n.sweep()
	if r, a := n.Report(), n.reported("a"); r.Unenforced != "" || a.Escapes != "" {
		t.Fatalf("at first: %q, %q", r.Unenforced, a.Escapes)
	}
	k.unenforced = errors.New("throttling is off")
	n.sweep()
	n.sweep()
	if r, a := n.Report(), n.reported("a"); r.Unenforced != "throttling is off" || a.Escapes != "throttling is off" || a.Error != "" {
		t.Errorf("turned off: %q of the node; escapes %q, error %q of the container", r.Unenforced, a.Escapes, a.Error)
	}
	k.unenforced = nil
	n.sweep()
	if r, a := n.Report(), n.reported("a"); r.Unenforced != "" || a.Escapes != "" {
		t.Errorf("back: %q of the node, %q of the container", r.Unenforced, a.Escapes)
	}
	for _, want := range []string{"budgets are not enforced any more", "budgets are enforced again"} {
		if got := strings.Count(log.String(), want); got != 1 {
			t.Errorf("the log says %q %d times; want once", want, got)
		}
	}
}
