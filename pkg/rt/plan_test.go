package rt_test

import (
	"reflect"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func TestPlanCore(t *testing.T) {
	high, middle, low := percent("high", rt.High, 20, 40), percent("middle", rt.Middle, 10, 20), percent("low", rt.Low, 30, 30)
	reserved := rt.Core{ID: 2, Capacity: 700_000, EscalationReserve: 200_000}
	virtual := rt.Core{ID: 2, Capacity: 900_000, Policy: rt.EDFVirtualDeadlines}
	fixed := rt.Core{ID: 2, Capacity: 1_000_000, Policy: rt.FixedPriority}
	for name, c := range map[string]struct {
		core    rt.Core
		servers []rt.Server
		want    rt.CorePlan
	}{
		"T1 pays every raise": {
			core2, []rt.Server{low, middle, high},
			rt.CorePlan{
				Core: 2, Threshold: 900_000, Test: "T1", Holds: true,
				Raise: []rt.Raise{{ID: "high", ToUs: 4_000, AtOnce: true}, {ID: "middle", ToUs: 2_000, AtOnce: true}},
			},
		},
		"T1k: the reserve pays one, squeezes pay more": {
			reserved, []rt.Server{low, middle, limited(high)},
			rt.CorePlan{
				Core: 2, Threshold: 900_000, Test: "T1k", Holds: true, Windows: 1,
				Raise: []rt.Raise{
					{ID: "high", ToUs: 4_000, Step: 200_000}, {ID: "middle", ToUs: 2_000, AtOnce: true},
				},
				Squeeze: []rt.Squeeze{{ID: "low", FloorUs: 1_500, Frees: 150_000}},
			},
		},
		"EDF-VD switches modes": {
			virtual, []rt.Server{percent("high", rt.High, 20, 60), percent("low", rt.Low, 40, 40)},
			rt.CorePlan{
				Core: 2, Threshold: 900_000, Test: "EDF-VD", Holds: true, ModeSwitch: true, VirtualDeadline: 500_000,
				Raise:   []rt.Raise{{ID: "high", ToUs: 6_000, Step: 400_000}},
				Squeeze: []rt.Squeeze{{ID: "low", FloorUs: 2_000, Frees: 200_000}},
			},
		},
		"T1 raises Low to what is left beside all others' raises, the smallest first": {
			core2, []rt.Server{percent("large", rt.Low, 10, 40), high, percent("small", rt.Low, 10, 30)},
			rt.CorePlan{
				Core: 2, Threshold: 900_000, Test: "T1", Holds: true,
				Raise: []rt.Raise{{ID: "high", ToUs: 4_000, AtOnce: true}, {ID: "large", ToUs: 4_000, AtOnce: true}},
			},
		},
		"T1 has no room left for Low": {
			core2, []rt.Server{percent("low", rt.Low, 30, 51), high},
			rt.CorePlan{Core: 2, Threshold: 900_000, Test: "T1", Holds: true, Raise: []rt.Raise{{ID: "high", ToUs: 4_000, AtOnce: true}}},
		},
		"AMC-rtb without need to squeeze": {
			fixed, []rt.Server{percent("high", rt.High, 20, 60)},
			rt.CorePlan{
				Core: 2, Threshold: 1_000_000, Test: "AMC-rtb", Holds: true,
				Raise: []rt.Raise{{ID: "high", ToUs: 6_000, AtOnce: true}},
			},
		},
		"AMC-rtb makes nothing of Limited": {
			fixed, []rt.Server{limited(high), percent("low", rt.Low, 10, 10)},
			rt.CorePlan{
				Core: 2, Threshold: 1_000_000, Test: "AMC-rtb", Holds: true,
				Raise: []rt.Raise{{ID: "high", ToUs: 4_000, AtOnce: true}},
			},
		},
		"a core that shrank raises what fits after squeezing, the most critical first": {
			rt.Core{ID: 2, Capacity: 650_000}, []rt.Server{low, middle, high, percent("fixed", rt.High, 10, 10)},
			rt.CorePlan{
				Core: 2, Threshold: 650_000, Test: "T1",
				Raise:   []rt.Raise{{ID: "middle", ToUs: 2_000, Step: 100_000}},
				Squeeze: []rt.Squeeze{{ID: "low", FloorUs: 1_500, Frees: 150_000}},
			},
		},
		"nobody": {core2, nil, rt.CorePlan{Core: 2, Threshold: 900_000, Test: "T1", Holds: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rt.PlanCore(c.core, c.servers); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}
