package migration

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// Two actions that run at the same time see the same core free. The second gets another core, and is rolled back only where there is
// none.
func TestACoreThatAnotherActionTookMeanwhile(t *testing.T) {
	server := func(id string) rt.Server {
		return rt.Server{ID: id, Period: 100_000, Deadline: 100_000, Low: 60_000, High: 60_000}
	}
	room := func(id string, core int) state.Migration {
		return state.Migration{Node: "b", Cores: []state.MigrationShare{{Core: core, Server: server(id)}}}
	}
	for what, tc := range map[string]struct {
		cores []int // as choose finds them, one after the other
		want  string
	}{
		"another core is free": {[]int{1, 2}, ""},
		"none is":              {[]int{1, 1, 1, 1, 1}, "reserving core 1 of node b"},
	} {
		node := statetest.Node("b", "b")
		store, err := state.Build(state.Options{}, node, statetest.Slice(node, statetest.Cores(3)...))
		if err != nil {
			t.Fatal(err)
		}
		if _, veto, err := reserveRoom(store, "first", func() (state.Migration, string) { return room("x", 1), "" }); veto != "" || err != nil {
			t.Fatalf("%s: the first: %q, %v", what, veto, err)
		}
		looks := 0
		got, veto, err := reserveRoom(store, "second", func() (state.Migration, string) {
			looks++
			return room("y", tc.cores[looks-1]), ""
		})
		if err != nil || (veto == "") != (tc.want == "") || !strings.HasPrefix(veto, tc.want) || looks != len(tc.cores) {
			t.Errorf("%s: %q, %v after %d looks", what, veto, err, looks)
		}
		if tc.want == "" && got.Cores[0].Core != 2 {
			t.Errorf("%s: it has core %d", what, got.Cores[0].Core)
		}
	}
}
