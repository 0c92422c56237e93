package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/test/bench/report"
)

// measureMemory weighs the state, with all that it keeps of the objects, after the objects are gone.
func measureMemory(_ context.Context, full size, l load) ([]report.Figure, error) {
	var weights []float64
	var builds []float64
	for round := range l.rounds {
		before := heap()
		store, took, err := buildStore(full, uint64(round))
		if err != nil {
			return nil, err
		}
		weights = append(weights, (heap()-before)/float64(full.containers))
		builds = append(builds, took.Seconds())
		runtime.KeepAlive(store)
	}
	return []report.Figure{
		{Key: "bytes_per_container", Value: median(weights), Goal: "< 4096", Note: fmt.Sprintf("heap of the state of %v, and what it keeps of McKubes, RTNodes and labels, / containers; median of %d", full, l.rounds)},
		{Key: "build_s", Value: median(builds), Note: "the same state from objects in memory"},
	}, nil
}

// buildStore keeps nothing but the store.
func buildStore(full size, seed uint64) (*state.Store, time.Duration, error) {
	objects := newWorld(full, seed).objects()
	runtime.GC()
	start := time.Now()
	store, err := state.Build(state.Options{}, objects...)
	return store, time.Since(start), err
}

// heap is what is in use after a collection.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers let go of
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
