package fastpath

import (
	"runtime"
	"testing"
)

func TestTheKeeperGivesWayAndEnds(t *testing.T) {
	k, err := newKeeper()
	if err != nil {
		t.Fatal(err)
	}
	go k.run()
	collections := 0
	for range 20 {
		k.without(func() { runtime.GC(); collections++ })
	}
	k.end()
	if collections != 20 {
		t.Errorf("%d collections", collections)
	}
	select {
	case <-k.ended:
	default:
		t.Error("it runs on")
	}
}
