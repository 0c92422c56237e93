package standalone_test

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

func TestTheTableSaysThatNothingIsEnforced(t *testing.T) {
	var out strings.Builder
	standalone.Table(&out, standalone.File{}, table.Report{Unenforced: "throttling is off"}, 0)
	if !strings.Contains(out.String(), "\nnot enforced: throttling is off\n") {
		t.Errorf("it says %q", out.String())
	}
}

// Raises are counted where they were made, whether an alarm was answered in time or the budget had ended already.
func TestTheTableCountsAllRaises(t *testing.T) {
	r := table.Report{Events: 3, Servers: []table.ServerReport{{ID: "a", Raises: 2}, {ID: "b", Raises: 1}}}
	var out strings.Builder
	standalone.Table(&out, standalone.File{}, r, 0)
	if !strings.HasSuffix(out.String(), "events 3, lost 0; raised 3 times\n") {
		t.Errorf("without a measured reaction it says %q", out.String())
	}
	r.React.Add(40)
	out.Reset()
	standalone.Table(&out, standalone.File{}, r, 0)
	if !strings.Contains(out.String(), "raised 3 times; on average") || !strings.HasSuffix(out.String(), "in 1 measured\n") {
		t.Errorf("with one it says %q", out.String())
	}
}
