package actuator

import (
	"strconv"
	"testing"
)

// BenchmarkGroup is what the sweep and the reports cost for each of a hundred containers, and a raise.
func BenchmarkGroup(b *testing.B) {
	backend, top := realMachine(b, RTGroup)
	var groups []Group
	for i := range 100 {
		pod := top + "/pod" + strconv.Itoa(i)
		makeReal(b, pod)
		makeReal(b, pod+"/c")
		g, err := backend.Open(Server{Cgroup: pod + "/c", Core: 1, PeriodUs: 100_000, DeadlineUs: 100_000, BudgetUs: 100, HighUs: 200})
		if err != nil {
			b.Fatal(err)
		}
		groups = append(groups, g)
	}
	for name, call := range map[string]func(Group) error{
		"Set":     func(g Group) error { return g.Set(150) },
		"Read":    func(g Group) error { _, _, err := g.Read(); return err },
		"Check":   func(g Group) error { _, err := g.Check(); return err },
		"Threads": func(g Group) error { _, _, err := g.Threads(); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if err := call(groups[i%len(groups)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Sweep", func(b *testing.B) {
		for range b.N {
			if _, err := backend.(*budgeted).settle(); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := backend.Restore(); err != nil {
		b.Fatal(err)
	}
}
