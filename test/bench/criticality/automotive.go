package main

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
)

// garage has containers of automotive runnables to draw sets from: drawing the runnables of each takes long.
type garage struct{ short, long func() []sim.Automotive }

// stock is how many containers there are of a period.
const stock = 200

func newGarage() garage {
	return garage{sync.OnceValue(func() []sim.Automotive { return automotive(shortUs) }), sync.OnceValue(func() []sim.Automotive { return automotive(longUs) })}
}

// automotive are containers of runnables with a period, always the same ones.
func automotive(period int64) []sim.Automotive {
	r := rand.New(rand.NewPCG(uint64(period), stock))
	out := make([]sim.Automotive, 0, stock)
	for len(out) < stock {
		if a := sim.NewAutomotive(r, ""); a.Period == period {
			out = append(out, a)
		}
	}
	return out
}

// tries bounds the search for a container that is large enough on a processor of some speed.
const tries = 50

// draw draws eight containers with the short period for a processor on which they would have a drawn share of a core
// on average. The heavy one has runnables with the long period, as many as there is room for.
func (g garage) draw(r *rand.Rand, total float64) []rt.Server {
	heavy, mean := heavyOf(r), between(r, leastShort, mostShort)/float64(len(mix)-1)
	speed := 0.0
	for _, a := range g.short() {
		speed += float64(a.High) / shortUs / stock / mean
	}
	all, rest := make([]budgets, 0, len(mix)), total
	for _, c := range slices.Delete(slices.Clone(mix), heavy, heavy+1) {
		var b budgets
		for try := 0; try < tries && !usable(server(0, c, shortUs, b.low*shortUs, b.high*shortUs)); try++ {
			b = shareOf(g.short()[r.IntN(stock)], speed)
		}
		all, rest = append(all, b), rest-b.high
	}
	shape := shareOf(g.long()[r.IntN(stock)], 1)
	return together(slices.Insert(all, heavy, budgets{rest * shape.low / shape.high, rest}), heavy)
}

// shareOf is what a container needs of a processor that is so many times as fast.
func shareOf(a sim.Automotive, speed float64) budgets {
	need := float64(a.Period) * speed
	return budgets{float64(a.Low) / need, float64(a.High) / need}
}
