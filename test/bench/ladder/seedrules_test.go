package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func governed(name, criticality string, low int64) rtPod {
	return rtPod{uid: types.UID(name), name: name, criticality: criticality, period: 100_000, low: low * 1000, high: low * 1000}
}

// The example of the MC-Kube controller's documentation.
func TestTheSeedMovesOrEvictsTheLeastCritical(t *testing.T) {
	one := newBook([]int32{2})
	for _, p := range []rtPod{governed("mid", "Middle", 40), governed("weak", "Low", 35)} {
		if evicted := one.add(p); len(evicted) != 0 {
			t.Fatalf("%v for %s", evicted, p.name)
		}
	}
	if evicted := one.add(governed("strong", "High", 25)); len(evicted) != 1 || evicted[0].name != "weak" {
		t.Errorf("evicted %v", evicted)
	}
	if got := one.load(2); got != 650_000 {
		t.Errorf("core 2 has %d ppm", got)
	}

	two := newBook([]int32{1, 2})
	for _, p := range []rtPod{governed("a", "Low", 30), governed("b", "Low", 60), governed("c", "Low", 30)} {
		two.add(p) // to cores 1, 2 and 1
	}
	if evicted := two.add(governed("strong", "High", 40)); len(evicted) != 0 || two.at["strong"] != 1 || two.load(1) != 700_000 || two.load(2) != 900_000 {
		t.Errorf("evicted %v, strong on core %d, loads %d and %d", evicted, two.at["strong"], two.load(1), two.load(2))
	}
}

// Beyond the limit it places all the same when nobody is less critical.
func TestTheSeedOverbooksAmongEquals(t *testing.T) {
	b := newBook([]int32{1})
	b.add(governed("a", "High", 60))
	if evicted := b.add(governed("b", "High", 60)); len(evicted) != 0 || b.load(1) != 1_200_000 {
		t.Errorf("evicted %v, %d ppm", evicted, b.load(1))
	}
	spec := b.spec()
	if len(spec.Servers) != 2 || len(spec.Plan) != 1 || len(spec.Plan[0].Raise) != 0 {
		t.Errorf("%+v", spec)
	}
	b.keep(map[types.UID]bool{"b": true})
	if b.load(1) != 600_000 {
		t.Errorf("%d ppm after a left", b.load(1))
	}
}

// One who overruns counts with its high budget, and who is less critical makes room for it.
func TestTheSeedLooksAgainAtWhoOverruns(t *testing.T) {
	b := newBook([]int32{1, 2})
	brake := governed("brake", "High", 20)
	brake.high = 60_000
	for _, p := range []rtPod{brake, governed("a", "Low", 50), governed("b", "Low", 40)} {
		b.add(p) // to cores 1, 2 and 1
	}
	if evicted := b.raise("brake", true); len(evicted) != 0 || b.at["b"] != 2 || b.load(1) != 600_000 || b.load(2) != 900_000 {
		t.Errorf("evicted %v, b on core %d, loads %d and %d", evicted, b.at["b"], b.load(1), b.load(2))
	}
	if b.raise("brake", false); b.load(1) != 200_000 || b.at["b"] != 2 {
		t.Errorf("b on core %d, %d ppm", b.at["b"], b.load(1))
	}
	b.add(governed("c", "Low", 50)) // to core 1
	if evicted := b.raise("brake", true); len(evicted) != 1 || evicted[0].name != "c" {
		t.Errorf("evicted %v, no core has room", evicted)
	}
}
