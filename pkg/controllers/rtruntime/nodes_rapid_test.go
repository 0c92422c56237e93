package rtruntime_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// drawnMachine is a machine whose containers come and go, change and are raised, with a scheduler that
// allocates whatever sums up.
type drawnMachine struct {
	*machine
	testing.TB
	pressure rtruntime.Pressure
	now      time.Time
	made     int
	// sound: no core has become coarser than what was charged.
	sound bool
}

// claimed is the bandwidth that claims take from a core.
func (m *drawnMachine) claimed(core int) rt.PPM {
	n := m.view(m.TB)
	c, ok := n.Core(core)
	if !ok {
		return rt.OneCore
	}
	return c.Claimed
}

// schedule gives the container a claim on the first core that has room and an escalation reserve that is
// large enough. It tells whether there was one.
func (m *drawnMachine) schedule(name string) bool {
	server, err := rtdra.ServerOf(m.mckubes[name], types.UID(name), "app")
	if err != nil {
		m.Fatal(err)
	}
	for _, core := range m.cores {
		if core.Granularity > granularity || server.Limited && server.Step() > core.EscalationReserve {
			continue
		}
		if m.claimed(core.ID)+server.Charge(granularity) <= core.Capacity {
			m.claim(name, core.ID)
			return true
		}
	}
	return false
}

func (m *drawnMachine) come(t *rapid.T) {
	m.made++
	name := fmt.Sprintf("p%02d", m.made)
	low := rapid.Int64Range(1, 60).Draw(t, "low")
	high := rapid.Int64Range(low, min(95, low*2)).Draw(t, "high")
	k := m.add(name, rapid.SampledFrom([]mcv1.Criticality{"Low", "Middle", "High"}).Draw(t, "criticality"), low, high, 0)
	delete(m.claims, name)
	if rapid.Bool().Draw(t, "limited") {
		k.Spec.Escalation = &mcv1.Escalation{Admission: mcv1.AdmissionLimited}
	}
	if rapid.Bool().Draw(t, "prefers") {
		m.prefer(name, fmt.Sprint(rapid.IntRange(0, len(m.cores)).Draw(t, "core")))
	}
	if !m.schedule(name) {
		m.leave(name)
	}
}

func (m *drawnMachine) leave(name string) {
	delete(m.pods, name)
	delete(m.mckubes, name)
	delete(m.claims, name)
}

// one draws a container that is there; empty when there is none.
func (m *drawnMachine) one(t *rapid.T) string {
	var names []string
	for name := range m.pods {
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return rapid.SampledFrom(names).Draw(t, "container")
}

// change draws new settings; the claim stays what it was.
func (m *drawnMachine) change(t *rapid.T) {
	name := m.one(t)
	if name == "" {
		return
	}
	k := m.mckubes[name].DeepCopy()
	k.Spec.RTSettings.RuntimeLow = 1000 * rapid.Int64Range(1, 60).Draw(t, "low")
	k.Spec.RTSettings.RuntimeHi = 1000 * rapid.Int64Range(k.Spec.RTSettings.RuntimeLow/1000, 95).Draw(t, "high")
	k.Spec.Criticality = rapid.SampledFrom([]mcv1.Criticality{"Low", "Middle", "High"}).Draw(t, "criticality")
	m.mckubes[name] = k
}

// check holds the spec that was written against what every spec has to keep.
func (m *drawnMachine) check(t *rapid.T, d rtruntime.Decision) {
	on, seen := map[int][]v1alpha1.RTServer{}, map[string]bool{}
	for _, e := range d.Spec.Servers {
		if seen[e.Pod] || len(e.Cores) != 1 {
			t.Fatalf("%s is there twice, or on cores %v", e.Pod, e.Cores)
		}
		seen[e.Pod] = true
		on[int(e.Cores[0])] = append(on[int(e.Cores[0])], e)
	}
	for core, entries := range on {
		m.checkCore(t, core, entries)
	}
	for id := range d.Refused {
		if m.sound && d.Refused[id].Reason != "ClaimTooSmall" {
			t.Fatalf("%s is refused though its claim was allocated: %v", id, d.Refused[id])
		}
	}
}

// checkCore tests the servers as they would be read back: the test passes, and what is asked at once is
// within what was proven.
func (m *drawnMachine) checkCore(t *rapid.T, id int, entries []v1alpha1.RTServer) {
	n := m.view(m.TB)
	core, ok := n.Core(id)
	if !ok {
		t.Fatalf("core %d does not exist", id)
	}
	var servers []rt.Server
	asked, windows := rt.PPM(0), 0
	for _, e := range entries {
		s := rtruntime.ServerOf(e)
		servers = append(servers, s)
		budget := s
		budget.Limited = e.Level != v1alpha1.LevelHigh // charged its low budget
		asked += budget.Charge(core.Granularity)
		if e.Level == v1alpha1.LevelHigh && s.Limited {
			windows++
		}
	}
	if v := rt.Holds(core.Core, servers); !v.Admitted {
		t.Fatalf("core %d does not hold: %v", id, v)
	}
	if asked > core.Capacity+core.EscalationReserve || windows > rt.Windows {
		t.Fatalf("core %d: the levels ask for %d ppm in %d windows", id, asked, windows)
	}
}

// Whatever comes, goes, changes or is raised: no version of a spec ever exceeds a core, and a container
// with a claim is never refused unless a core got worse than what was charged.
func TestNoSpecEverExceedsACore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := &drawnMachine{machine: newMachine(rapid.IntRange(1, 4).Draw(r, "cores")), TB: t, now: start, sound: true}
		for i := range m.cores {
			if rapid.Bool().Draw(r, "reserve") {
				m.cores[i].Capacity, m.cores[i].EscalationReserve = 600_000, 300_000
			}
		}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"come", "come", "come", "go", "change", "pressure", "coarser"}).Draw(r, "step") {
			case "come":
				m.come(r)
			case "go":
				m.leave(m.one(r))
			case "change":
				m.change(r)
			case "pressure":
				m.busy(rapid.Bool().Draw(r, "busy"))
			case "coarser":
				if rapid.IntRange(0, 9).Draw(r, "seldom") == 0 {
					m.cores[0].Granularity, m.sound = 1500, false
				}
			}
			m.now = m.now.Add(time.Duration(rapid.IntRange(-2, 10).Draw(r, "seconds")) * time.Second)
			d := m.settle(t, m.pressure, m.now)
			m.pressure = d.Pressure
			m.check(r, d)
			if again := rtruntime.Decide(m.view(t), m.pressure, m.now, granularity); spec(again.Spec) != spec(d.Spec) {
				r.Fatalf("deciding twice gives\n %s\n %s", spec(d.Spec), spec(again.Spec))
			}
		}
	})
}
