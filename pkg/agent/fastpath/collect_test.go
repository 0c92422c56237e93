package fastpath_test

import (
	"context"
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
)

func TestReadersLetGoForACollection(t *testing.T) {
	for _, realtime := range []bool{true, false} {
		n := newNode(t, newKernel("/a"), t.TempDir())
		n.Realtime = realtime
		ctx, stop := context.WithCancel(t.Context())
		n.stop = stop
		go func() { n.ended <- n.Run(ctx, nil) }()
		held := func() (all []bool) {
			for _, r := range n.programs.rings {
				all = append(all, r.held.Load())
			}
			return all
		}
		for _, r := range n.programs.rings {
			<-r.waits
		}
		fastpath.LettingGo(n.Engine, func() {
			if slices.Contains(held(), true) {
				t.Errorf("real-time %t: readers hold up a collection", realtime)
			}
		})
		if got := held(); slices.Contains(got, !realtime) {
			t.Errorf("real-time %t: held %v; want all of a process that collects at moments of its choice, and of no other", realtime, got)
		}
		n.end()
	}
}
