package fastpath_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// The process after this one may have other cores. What it cannot open since the table sends it to none of them, or since opening it fails, it has its
// backend spare, and tells why: also a server that stayed elsewhere while it could not come to its core.
func TestWhatHasNoCoreIsSpared(t *testing.T) {
	k, dir := newKernel("/a", "/b", "/c"), t.TempDir()
	n := start(t, k, dir)
	a, b, c := high("a", "/a", 0), high("b", "/b", 0), high("c", "/c", 1)
	n.apply(tableOf(1, a, b, c))
	a.Core = 7 // it stays on 0
	n.apply(tableOf(2, a, b, c))
	if len(k.spared) > 0 || n.reported("a").BudgetUs == 0 {
		t.Fatalf("spares %v while all are governed", k.spared)
	}
	n.end()

	k.change(func() { k.openErrs["/b"] = errors.New("no way") })
	n = start(t, k, dir)
	if want := []string{"/a", "/b"}; !slices.Equal(k.spared, want) || k.sweeps.Load() == 0 {
		t.Errorf("spares %v; want %v", k.spared, want)
	}
	for id, want := range map[string]string{"a": "core 7 takes no real-time work; want one of [0 1]", "b": "no way", "c": ""} {
		if got := n.reported(id).Error; got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	n.apply(tableOf(3, b, c, high("d", "", 0))) // a leaves; d has no container
	if want := []string{"/b"}; !slices.Equal(k.spared, want) {
		t.Errorf("spares %v; want %v", k.spared, want)
	}
}
