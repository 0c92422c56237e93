package state_test

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// migrate is an action that has reserved cores of node n for servers of so many milliseconds.
func migrate(t *testing.T, phase v1alpha1.ActionPhase, ms map[int]int64) *v1alpha1.RTAction {
	t.Helper()
	m := state.Migration{Node: "n"}
	for core := range 4 {
		if low, ok := ms[core]; ok {
			m.Cores = append(m.Cores, state.MigrationShare{Core: core, Server: server("p/app", rt.High, low, low)})
		}
	}
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       v1alpha1.RTActionSpec{Kind: "Migrate"},
		Status:     v1alpha1.RTActionStatus{Phase: phase, Progress: map[string]string{state.ProgressReserved: text}},
	}
}

func TestAnActionOnRecordReserves(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	// The store of another process: all it knows is what is on record.
	store, err := state.Build(state.Options{}, n, statetest.Slice(n, statetest.Cores(2)...), migrate(t, "Running", map[int]int64{0: 20, 1: 30}))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(why string, free ...rt.PPM) {
		t.Helper()
		for i, c := range view(t, store.Snapshot(), "n").Cores {
			if c.Free != free[i] {
				t.Errorf("%s: core %d has %d free, want %d", why, i, c.Free, free[i])
			}
		}
	}
	update := func(o *v1alpha1.RTAction) {
		t.Helper()
		if err := store.Update(o); err != nil {
			t.Fatal(err)
		}
	}
	expect("on record", 699_000, 599_000)
	update(migrate(t, "RollingBack", map[int]int64{1: 30}))
	expect("less of it", 900_000, 599_000)
	silent := migrate(t, "Running", nil)
	silent.Status.Progress = nil
	update(silent)
	expect("nothing on record yet: what was reserved here stays", 900_000, 599_000)
	broken := migrate(t, "Running", nil)
	broken.Status.Progress[state.ProgressReserved] = "{"
	if err := store.Update(broken); err == nil {
		t.Error("nonsense on record is no error")
	}
	expect("nonsense on record", 900_000, 599_000)
	other := migrate(t, "Running", map[int]int64{0: 20})
	other.Spec.Kind, other.Name = "Preempt", "b"
	update(other)
	expect("another kind", 900_000, 599_000)
	for _, phase := range []v1alpha1.ActionPhase{"Succeeded", "Failed", "RolledBack"} {
		update(migrate(t, "Running", map[int]int64{0: 20, 1: 30}))
		update(migrate(t, phase, map[int]int64{0: 20, 1: 30}))
		expect(string(phase), 900_000, 900_000)
	}
	update(migrate(t, "Running", map[int]int64{0: 20, 1: 30}))
	store.ReleaseMigration("a")
	expect("released", 900_000, 900_000)
	update(migrate(t, "Running", map[int]int64{0: 20, 1: 30}))
	if err := store.Delete(migrate(t, "Running", nil)); err != nil {
		t.Error(err)
	}
	expect("gone", 900_000, 900_000)
}

// Servers that go together have their room together, or none of them has any.
func TestReservingAllOrNone(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	store, err := state.Build(state.Options{}, n, statetest.Slice(n, statetest.Cores(2)...))
	if err != nil {
		t.Fatal(err)
	}
	on := func(cores ...int) []state.Reservation {
		m := state.Migration{Node: "n"}
		for i, core := range cores {
			m.Cores = append(m.Cores, state.MigrationShare{Core: core, Server: server(fmt.Sprintf("p/c%d", i), rt.High, 50, 50)})
		}
		return m.Reservations("a")
	}
	refused := &state.RefusedError{}
	if err := store.ReserveAll(on(0, 0)); !errors.As(err, &refused) || refused.Core != 0 {
		t.Errorf("two halves and more of one core: %v", err)
	}
	if got := view(t, store.Snapshot(), "n").Reservations; len(got) != 0 {
		t.Errorf("of those refused, %v are left", got)
	}
	for range 2 { // again is not twice
		if err := store.ReserveAll(on(0, 1)); err != nil {
			t.Error(err)
		}
	}
	if err := store.ReserveAll(on(1, 0)); err != nil { // they change places
		t.Error(err)
	}
	if got := view(t, store.Snapshot(), "n").Reservations; len(got) != 2 || got[0].Core != 1 {
		t.Errorf("reserved: %v", got)
	}
}
