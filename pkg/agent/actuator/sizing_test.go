package actuator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// simGroup is a real-time group as the kernel accounts it on one CPU: time used is charged as it is used
// and taken off by the runtime at the end of every period.
type simGroup struct {
	runtime, period int64
	next            int64 // end of the period
	used            int64
}

func (g *simGroup) advance(now int64) {
	for ; g.next <= now; g.next += g.period {
		g.used -= min(g.used, g.runtime)
	}
}

func (g *simGroup) throttled() bool { return g.used > g.runtime }

// simTask uses its group's budget as greedily as the kernel lets it, beginning and pausing at will, and is stopped only
// some time after the budget ended.
type simTask struct {
	simGroup
	overshoot int64
}

// TestNoLevelThrottlesBeforeItsContainers runs greedy containers on one CPU, whose windows begin anywhere and whose budgets
// end late, below one level of the size that need gives it: the level's time must never be exceeded.
func TestNoLevelThrottlesBeforeItsContainers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const tick = 500 // us; the granularity of the simulation
		n := rapid.IntRange(1, 4).Draw(t, "containers")
		level := simGroup{period: rapid.Int64Range(20, 400).Draw(t, "window") * 1_000}
		var tasks []*simTask
		for i := range n {
			period := rapid.Int64Range(4, 60).Draw(t, fmt.Sprint("period", i)) * 1_000
			runtime := rapid.Int64Range(1, max(1, period/tick/int64(n))).Draw(t, fmt.Sprint("runtime", i)) * tick
			task := &simTask{simGroup: simGroup{runtime: runtime, period: period}}
			task.next = rapid.Int64Range(1, period/tick).Draw(t, fmt.Sprint("phase", i)) * tick
			task.overshoot = rapid.Int64Range(0, 7).Draw(t, fmt.Sprint("overshoot", i)) * tick
			tasks = append(tasks, task)
			level.runtime += demand{runtime, period}.within(level.period)
		}
		level.next = rapid.Int64Range(1, level.period/tick).Draw(t, "phase") * tick
		idle := rapid.SliceOfN(rapid.IntRange(0, 30), n, n).Draw(t, "idle ticks")
		for now := int64(0); now < 6*level.period; now += tick {
			level.advance(now)
			for _, task := range tasks {
				task.advance(now)
			}
			ready := slices.DeleteFunc(slices.Clone(tasks), func(task *simTask) bool {
				i := slices.Index(tasks, task)
				return task.used >= task.runtime+task.overshoot+tick && task.throttled() || now%(40*tick) < int64(idle[i])*tick
			})
			if len(ready) == 0 {
				continue
			}
			// The one that has used most of its budget runs on, as a thread of higher priority would.
			task := slices.MaxFunc(ready, func(a, b *simTask) int { return cmp.Compare(a.used, b.used) })
			task.used += tick
			level.used += tick
			if level.throttled() {
				t.Fatalf("at %d us the level used %d of %d us in its window of %d us", now, level.used, level.runtime, level.period)
			}
		}
	})
}

// TestSamePeriodIsNotEnough is why levels are not given the period and budget of their only container: out of
// step, the container uses its budget at the end of a period and again at the beginning of the next.
func TestSamePeriodIsNotEnough(t *testing.T) {
	container := simGroup{runtime: 4_000, period: 10_000, next: 10_000}
	level := simGroup{runtime: 4_100, period: 10_000, next: 16_000}
	for now := int64(0); now < 20_000; now += 500 {
		container.advance(now)
		level.advance(now)
		if now >= 6_000 && container.used < container.runtime {
			container.used += 500
			level.used += 500
		}
		if level.throttled() {
			return
		}
	}
	t.Error("the level was never throttled; the comment on windowUs and demand.within would be wrong")
}

// TestRatiosAddUp: what need gives a level is at least the sum of the kernel's ratios of what is below.
func TestRatiosAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "containers")
		var ratios, shares, halves int64
		for range n {
			period := rapid.Int64Range(100, 4_000_000).Draw(t, "period")
			runtime := rapid.Int64Range(1, period).Draw(t, "runtime")
			ratios += ratio(runtime, period)
			share := demand{runtime, period}.within(windowUs)
			shares += share
			halves += ratio(share, windowUs)
		}
		if own := ratio(shares, windowUs); ratios > own || halves > own {
			t.Fatalf("a level of %d us holds a ratio of %d; its containers' are %d, its pods' %d", shares, own, ratios, halves)
		}
	})
}

// TestEveryOrderOfWritesIsAccepted opens, raises, moves, changes and closes servers at random on the fake kernel: as
// long as the pot has room, the kernel must not refuse any write on the way, and at the end nothing may be left.
func TestEveryOrderOfWritesIsAccepted(t *testing.T) {
	for l := range 3 {
		t.Run(layouts[l].name, func(t *testing.T) {
			s := newSim(t, layouts[l].mount)
			c := populate(s)
			before := s.snapshot()
			paths := []string{c.first, c.second, c.guaranteed, c.bestEffort}
			rapid.Check(t, func(rt *rapid.T) {
				b := s.probe(layouts[l].backend)
				groups := map[string]Group{}
				servers := map[string]Server{}
				for range rapid.IntRange(1, sampling.Count(10, 25)).Draw(rt, "steps") {
					path := rapid.SampledFrom(paths).Draw(rt, "group")
					period := rapid.Int64Range(2, 200).Draw(rt, "period") * 1_000
					high := rapid.Int64Range(100, period/10).Draw(rt, "high")
					server := Server{
						Cgroup: path, Core: rapid.IntRange(0, 3).Draw(rt, "core"), PeriodUs: period, DeadlineUs: period,
						HighUs: high, BudgetUs: rapid.Int64Range(50, high).Draw(rt, "budget"), Priority: 3,
					}
					g := groups[path]
					var err error
					switch step := rapid.SampledFrom([]string{"open", "set", "resize", "move", "close", "restart", "sweep"}).Draw(rt, "step"); {
					case step == "open" || g == nil:
						if g, err = b.Open(server); err == nil {
							groups[path], servers[path] = g, server
						}
					case step == "set":
						err = g.Set(rapid.Int64Range(1, servers[path].HighUs).Draw(rt, "to"))
					case step == "resize":
						server = servers[path]
						server.HighUs = rapid.Int64Range(100, server.PeriodUs/10).Draw(rt, "resize to")
						err = errors.Join(g.(Resizable).Resize(server.HighUs), g.Set(rapid.Int64Range(50, server.HighUs).Draw(rt, "then")))
						servers[path] = server
					case step == "move":
						err = g.Move(server.Core)
					case step == "close":
						err = g.Close(rapid.Bool().Draw(rt, "restore"))
						delete(groups, path)
					case step == "restart":
						b = s.probe(layouts[l].backend)
						for path := range groups {
							server := servers[path]
							server.BudgetUs = 0
							if groups[path], err = b.Open(server); err != nil {
								break
							}
						}
					case step == "sweep":
						_, err = b.Sweep()
					}
					if err != nil {
						rt.Fatalf("%v\nafter %d writes", err, len(s.log))
					}
				}
				if err := b.Restore(); err != nil {
					rt.Fatal(err)
				}
				if d := differences(before, s.snapshot()); len(d) > 0 {
					rt.Fatalf("left: %v", d)
				}
			})
		})
	}
}
