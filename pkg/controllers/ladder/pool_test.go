package ladder_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// A NodePool with a fixed number of nodes replaces none for pressure, and the controller asks for none.
func TestNoNodeOfAFixedNumberIsReplaced(t *testing.T) {
	for name, fixed := range map[string]*int64{"as many as are needed": nil, "two": ptr.To[int64](2)} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.node("a", 1)
			s.sick("a")
			s.fixed = fixed
			for _, kind := range rules.Kinds {
				s.conduct[kind] = rules.Result{Undo: true, Message: "no"}
			}
			p := s.spawn()
			for range 20 {
				s.misses["sick"] += 3
				s.turns(p, 1)
			}
			got := s.actions()
			replaced := slices.ContainsFunc(got, func(a string) bool { return strings.HasPrefix(a, "ReplaceNode") })
			if len(got) == 0 || replaced != (fixed == nil) {
				t.Errorf("asked for %q", got)
			}
		})
	}
}
