package table_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

func TestEntriesOfPlansThatAreOlderThanTheContainers(t *testing.T) {
	here, moved := server(), server()
	moved.ID, moved.Core = "moved", 2
	whole := table.Table{
		Servers: []table.Server{here, moved},
		Plans: []table.Plan{
			{Core: 1, Raise: []table.Raise{{ID: "moved"}, {ID: "a"}, {ID: "gone"}}, Squeeze: []table.Squeeze{{ID: "gone"}, {ID: "a"}}},
			{Core: 2, Raise: []table.Raise{{ID: "moved"}}, Squeeze: []table.Squeeze{{ID: "former"}}},
		},
	}
	if got, want := whole.Stale(), []string{"core 1: gone", "core 1: moved", "core 2: former"}; !slices.Equal(got, want) {
		t.Errorf("stale are %q; want %q", got, want)
	}
	whole.Plans[0].Raise, whole.Plans[0].Squeeze, whole.Plans[1].Squeeze = whole.Plans[0].Raise[1:2], nil, nil
	if got := whole.Stale(); len(got) > 0 {
		t.Errorf("stale are %q; want none", got)
	}
}
