package main

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// What the MC-Kube controller does, as its documentation has it: a pod gets the core that it prefers, here none, or the
// one with the least load; beyond nine tenths of a core less critical pods go to the core with the least load, or are
// evicted when it has no room. Loads are those of the budgets at the time: one who overruns is looked at again with its high
// budget. (The controller then counts its own low budget as well; that fault is left out.) Nothing else is tested before a pod is placed or raised.

// coreLimit is the load of a core, in parts per million, above which the seed preempts.
const coreLimit = 900_000

// ranks of criticalities.
var ranks = map[string]int{"Low": 0, "Middle": 1, "High": 2}

// rtPod is a pod with a budget. It has one container.
type rtPod struct {
	uid                       types.UID
	namespace, name           string
	container, criticality    string
	period, low, high         int64
	pressuredTotal, pressured int32 // misses, and the seconds within which they count
}

// book is what the seed remembers of a node: its CPU pool.
type book struct {
	cores []int32
	at    map[types.UID]int32
	pods  map[types.UID]rtPod
	// raised are those that have, or are to have, their high budgets.
	raised map[types.UID]bool
}

func newBook(cores []int32) *book {
	return &book{cores: cores, at: map[types.UID]int32{}, pods: map[types.UID]rtPod{}, raised: map[types.UID]bool{}}
}

// keep forgets the pods that are not among these.
func (b *book) keep(here map[types.UID]bool) {
	for uid := range b.pods {
		if !here[uid] {
			b.forget(uid)
		}
	}
}

func (b *book) forget(uid types.UID) {
	delete(b.pods, uid)
	delete(b.at, uid)
	delete(b.raised, uid)
}

// add places a pod, and returns those that are to be evicted for it.
func (b *book) add(p rtPod) (evicted []rtPod) {
	if _, ok := b.pods[p.uid]; ok || len(b.cores) == 0 {
		return nil
	}
	core := b.idlest(-1)
	b.pods[p.uid], b.at[p.uid] = p, core
	return b.relieve(core, ranks[p.criticality])
}

// raise counts a pod with its high budget, or no longer, and returns those that are to be evicted for it.
func (b *book) raise(uid types.UID, high bool) (evicted []rtPod) {
	p, ok := b.pods[uid]
	if !ok || b.raised[uid] == high {
		return nil
	}
	b.raised[uid] = high
	if !high {
		return nil
	}
	return b.relieve(b.at[uid], ranks[p.criticality])
}

// relieve takes pods below a rank off a core that is too full.
func (b *book) relieve(core int32, rank int) (evicted []rtPod) {
	for _, victim := range b.victims(core, rank) {
		if b.load(core) <= coreLimit {
			break
		}
		if other := b.idlest(core); other >= 0 && b.load(other)+b.loadOf(victim) <= coreLimit {
			b.at[victim.uid] = other
			continue
		}
		b.forget(victim.uid)
		evicted = append(evicted, victim)
	}
	return evicted
}

// loadOf a pod, in parts per million of a core.
func (b *book) loadOf(p rtPod) int64 {
	if b.raised[p.uid] {
		return p.high * 1_000_000 / p.period
	}
	return p.low * 1_000_000 / p.period
}

// idlest is the core with the least load but for one; -1 when there is none.
func (b *book) idlest(but int32) int32 {
	best := int32(-1)
	for _, core := range b.cores {
		if core != but && (best < 0 || b.load(core) < b.load(best)) {
			best = core
		}
	}
	return best
}

func (b *book) load(core int32) int64 {
	total := int64(0)
	for uid, p := range b.pods {
		if b.at[uid] == core {
			total += b.loadOf(p)
		}
	}
	return total
}

// victims are the pods of a core below a rank, the least critical first.
func (b *book) victims(core int32, rank int) []rtPod {
	var list []rtPod
	for uid, p := range b.pods {
		if b.at[uid] == core && ranks[p.criticality] < rank {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(x, y rtPod) int {
		return cmp.Or(cmp.Compare(ranks[x.criticality], ranks[y.criticality]), cmp.Compare(x.uid, y.uid))
	})
	return list
}

// spec tells the node's agent what the seed's daemon would be told: who runs where, and that an overrun raises anybody.
func (b *book) spec() v1alpha1.RTNodeSpec {
	spec := v1alpha1.RTNodeSpec{}
	for _, uid := range slices.Sorted(maps.Keys(b.pods)) {
		p := b.pods[uid]
		spec.Servers = append(spec.Servers, v1alpha1.RTServer{
			PodUID: uid, Namespace: p.namespace, Pod: p.name, Container: p.container, Criticality: p.criticality,
			PeriodUs: p.period, DeadlineUs: p.period, BudgetLowUs: p.low, BudgetHighUs: p.high,
			Cores: []int32{b.at[uid]}, Level: v1alpha1.LevelLow, Mode: "Elastic",
		})
	}
	for _, core := range b.cores {
		plan := v1alpha1.RTCorePlan{Core: core, Test: "T1", ThresholdPpm: coreLimit}
		for _, s := range spec.Servers {
			if s.Cores[0] == core && s.BudgetHighUs > s.BudgetLowUs {
				plan.Raise = append(plan.Raise, v1alpha1.RTRaise{RTServerRef: v1alpha1.RTServerRef{PodUID: s.PodUID, Container: s.Container}, ToUs: s.BudgetHighUs})
			}
		}
		spec.Plan = append(spec.Plan, plan)
	}
	return spec
}
