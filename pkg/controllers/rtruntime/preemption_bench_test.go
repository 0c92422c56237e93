package rtruntime_test

import (
	"fmt"
	"testing"
)

// BenchmarkCheapest plans room in 1,000 nodes of 32 cores with 32,000 containers, where every core is
// taken to a half and every third container may go.
func BenchmarkCheapest(b *testing.B) {
	s := &site{}
	for n := range 1_000 {
		node := fmt.Sprintf("n%04d", n)
		s.node(node, 32)
		for core := range 32 {
			s.pod(fmt.Sprintf("%s-%d", node, core), node, one(criticalities[core%3], 50, core))
		}
	}
	s.pod("high", "", one("High", 80, 0))
	scene := s.scene(b)
	for b.Loop() {
		if r, ok := scene.Cheapest(); !ok || len(r.Victims) != 1 {
			b.Fatalf("%+v", r)
		}
	}
}
