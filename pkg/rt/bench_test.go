package rt_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// fullNode is a node of 64 cores with 20 small servers on each, about 85 % full.
func fullNode(policy rt.Policy) []rt.Load {
	r := rand.New(rand.NewPCG(1, 1))
	var loads []rt.Load
	for id := range 64 {
		load := rt.Load{Core: rt.Core{ID: id, Capacity: rt.MaxCapacity, Granularity: 100, Policy: policy}}
		for i := range 20 {
			period := 20_000 * (1 + r.Int64N(5))
			s := rt.Server{
				ID: fmt.Sprintf("%d/%d", id, i), Criticality: rt.Criticality(r.IntN(3)), Period: period,
				Low: period * (15 + r.Int64N(10)) / 1000, Priority: int(rt.MaxPeriod - period),
			}
			s.High = s.Low * (10 + r.Int64N(10)) / 10
			load.Servers = append(load.Servers, s)
		}
		loads = append(loads, load)
	}
	return loads
}

var added = rt.Server{ID: "new", Criticality: rt.High, Period: 20_000, Low: 2_000, High: 4_000, Priority: int(rt.MaxPeriod)}

func BenchmarkAdmit(b *testing.B) {
	for name, policy := range map[string]rt.Policy{"EDF": rt.EDF, "VirtualDeadlines": rt.EDFVirtualDeadlines, "FixedPriority": rt.FixedPriority} {
		b.Run(name, func(b *testing.B) {
			load := fullNode(policy)[0]
			b.ReportAllocs()
			for b.Loop() {
				rt.Admit(load.Core, load.Servers, added)
			}
		})
	}
}

func BenchmarkBestCore(b *testing.B) {
	loads := fullNode(rt.EDF)
	b.ReportAllocs()
	for b.Loop() {
		rt.BestCore(loads, added)
	}
}

func BenchmarkVictims(b *testing.B) {
	for _, servers := range []int{12, 20} {
		b.Run(fmt.Sprint(servers), func(b *testing.B) {
			load := fullNode(rt.EDF)[0]
			load.Servers = load.Servers[:servers]
			for i := range load.Servers {
				load.Servers[i].Criticality = rt.Low
			}
			load.Capacity = load.Used()
			b.ReportAllocs()
			for b.Loop() {
				rt.Victims(load, added)
			}
		})
	}
}

func BenchmarkPlanCore(b *testing.B) {
	load := fullNode(rt.EDF)[0]
	b.ReportAllocs()
	for b.Loop() {
		rt.PlanCore(load.Core, load.Servers)
	}
}

// One server added to a node with 1,280 servers; and all of them at once, as after a restart without any RTNode.
func BenchmarkArrange(b *testing.B) {
	node := rt.Node{Current: rt.Placement{}, Witness: rt.Placement{}}
	for _, load := range fullNode(rt.EDF) {
		node.Cores = append(node.Cores, load.Core)
		for _, s := range load.Servers {
			if rt.Admit(load.Core, nil, s).Admitted {
				node.Servers = append(node.Servers, s)
				node.Witness[s.ID] = load.ID
			}
		}
	}
	fresh := node
	node.Current, _, _ = rt.Arrange(node)
	node.Servers = append(node.Servers, added)
	b.Run("newcomer", func(b *testing.B) {
		for b.Loop() {
			rt.Arrange(node)
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			rt.Arrange(fresh)
		}
	})
}
