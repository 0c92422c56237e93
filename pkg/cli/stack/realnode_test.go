package stack

import (
	"slices"
	"strings"
	"testing"
)

func TestCoresAreDividedAmongNodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		online []int
		nodes  int
		want   []string
	}{
		{[]int{0, 1}, 1, []string{"1"}},
		{[]int{0, 1}, 2, []string{"0", "1"}}, // the host has none to itself
		{[]int{0, 1, 2, 3, 4, 5}, 2, []string{"1-2", "3-5"}},
		{[]int{0, 2, 4, 6}, 3, []string{"2", "4", "6"}},
	} {
		if got, err := divide(test.online, test.nodes); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%d nodes of %v get %q, %v; want %q", test.nodes, test.online, got, err, test.want)
		}
	}
	for _, nodes := range []int{-1, 3} {
		if got, err := divide([]int{0, 1}, nodes); err == nil || !strings.Contains(err.Error(), "want 0 to 2") {
			t.Errorf("%d nodes get %q, %v", nodes, got, err)
		}
	}
}
