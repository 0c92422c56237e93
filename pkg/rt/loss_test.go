package rt_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/samber/lo"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func TestLossRanksCriticalityBeforeBandwidth(t *testing.T) {
	if two, middle := 2*rt.Loss(rt.Low, 1_000_000), rt.Loss(rt.Middle, 10_000); two >= middle {
		t.Errorf("two large Low servers cost %d, a small Middle one %d", two, middle)
	}
	if three, high := 3*rt.Loss(rt.Middle, 1_000_000), rt.Loss(rt.High, 10_000); three >= high {
		t.Errorf("three large Middle servers cost %d, a small High one %d", three, high)
	}
	if small, large := rt.Loss(rt.Low, 200_000), rt.Loss(rt.Low, 201_000); small >= large {
		t.Errorf("a smaller server costs %d, a larger %d", small, large)
	}
}

// drawCandidates draws what may go, and how much must be freed.
func drawCandidates(t *rapid.T, least, most int) ([]rt.Candidate, func([]rt.Candidate) bool) {
	var out []rt.Candidate
	all := rt.PPM(0)
	for i := range rapid.IntRange(least, most).Draw(t, "candidates") {
		size := rt.PPM(rapid.Int64Range(1, 300).Draw(t, "size")) * 1_000
		out = append(out, rt.Candidate{ID: fmt.Sprint(i), Size: size, Loss: rt.Loss(rt.Criticality(rapid.IntRange(0, 1).Draw(t, "criticality")), size)})
		all += size
	}
	missing := rt.PPM(rapid.Int64Range(0, int64(all)+50_000).Draw(t, "missing"))
	return out, func(gone []rt.Candidate) bool {
		total := rt.PPM(0)
		for _, c := range gone {
			total += c.Size
		}
		return total >= missing
	}
}

func lossOf(candidates []rt.Candidate) (total int64) {
	for _, c := range candidates {
		total += c.Loss
	}
	return total
}

func TestLeastLossIsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates, fits := drawCandidates(t, 0, 10)
		gone, ok := rt.LeastLoss(candidates, fits)
		if ok != fits(candidates) {
			t.Fatalf("found %v, all together would do: %v", ok, fits(candidates))
		}
		if !ok {
			return
		}
		if !fits(gone) {
			t.Fatal("it does not fit without those that go")
		}
		for mask := range 1 << len(candidates) {
			var other []rt.Candidate
			for i, c := range candidates {
				if mask&(1<<i) != 0 {
					other = append(other, c)
				}
			}
			if fits(other) && lossOf(other) < lossOf(gone) {
				t.Fatalf("%v costs %d, %v would %d", gone, lossOf(gone), other, lossOf(other))
			}
		}
	})
}

// Of more than are all tried: enough, each of them needed, and no cheaper candidate would do in the place of one.
func TestLeastLossOfMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates, fits := drawCandidates(t, 13, 40)
		gone, ok := rt.LeastLoss(candidates, fits)
		if ok != fits(candidates) || ok && !fits(gone) {
			t.Fatalf("found %v, %v", gone, ok)
		}
		for i := range gone {
			rest := append(append([]rt.Candidate{}, gone[:i]...), gone[i+1:]...)
			if fits(rest) {
				t.Fatalf("%v need not go", gone[i])
			}
			for _, c := range candidates {
				if c.Loss < gone[i].Loss && !contains(gone, c) && fits(append(rest, c)) {
					t.Fatalf("%v would do for %v", c, gone[i])
				}
			}
		}
	})
}

// drawMay draws groups of candidates, of each of which only some may go.
func drawMay(t *rapid.T, candidates []rt.Candidate) func([]rt.Candidate) bool {
	group, most := map[string]int{}, []int{len(candidates)}
	for range rapid.IntRange(1, 3).Draw(t, "groups") {
		most = append(most, rapid.IntRange(0, 3).Draw(t, "most"))
	}
	for _, c := range candidates {
		group[c.ID] = rapid.IntRange(0, len(most)-1).Draw(t, "group")
	}
	return func(gone []rt.Candidate) bool {
		taken := make([]int, len(most))
		for _, c := range gone {
			if taken[group[c.ID]]++; taken[group[c.ID]] > most[group[c.ID]] {
				return false
			}
		}
		return true
	}
}

func TestLeastLossAmongIsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates, fits := drawCandidates(t, 0, 10)
		may := drawMay(t, candidates)
		gone, ok := rt.LeastLossAmong(candidates, may, fits)
		if ok && (!fits(gone) || !may(gone)) {
			t.Fatalf("%v: fits %v, may go %v", gone, fits(gone), may(gone))
		}
		for mask := range 1 << len(candidates) {
			var other []rt.Candidate
			for i, c := range candidates {
				if mask&(1<<i) != 0 {
					other = append(other, c)
				}
			}
			if fits(other) && may(other) && (!ok || lossOf(other) < lossOf(gone)) {
				t.Fatalf("%v (%v) costs %d, %v would %d", gone, ok, lossOf(gone), other, lossOf(other))
			}
		}
	})
}

// Of more than are all tried: they may go, are enough, and each of them is needed.
func TestLeastLossAmongMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates, fits := drawCandidates(t, 13, 40)
		may := drawMay(t, candidates)
		gone, ok := rt.LeastLossAmong(candidates, may, fits)
		if !ok {
			return
		}
		if !fits(gone) || !may(gone) {
			t.Fatalf("%v: fits %v, may go %v", gone, fits(gone), may(gone))
		}
		for i := range gone {
			if fits(append(append([]rt.Candidate{}, gone[:i]...), gone[i+1:]...)) {
				t.Fatalf("%v need not go", gone[i])
			}
		}
	})
}

// Where no other candidate would do, a dear one that may go is found among many that may not.
func TestLeastLossAmongManyThatMayNot(t *testing.T) {
	dear := rt.Candidate{ID: "dear", Loss: 4_000, Size: 100}
	candidates := []rt.Candidate{dear}
	for i := range 20 {
		candidates = append(candidates, rt.Candidate{ID: fmt.Sprint(i), Loss: 1_000, Size: 100})
	}
	may := func(gone []rt.Candidate) bool { return len(gone) == 0 || len(gone) == 1 && gone[0] == dear }
	gone, ok := rt.LeastLossAmong(candidates, may, func(gone []rt.Candidate) bool { return len(gone) > 0 })
	if !ok || len(gone) != 1 || gone[0] != dear {
		t.Errorf("got %v %v", gone, ok)
	}
}

func contains(candidates []rt.Candidate, c rt.Candidate) bool {
	for _, o := range candidates {
		if o == c {
			return true
		}
	}
	return false
}

// Found by chance: an exchange for a cheaper one that frees more makes another of those that go needless.
func TestNoCandidateGoesThatAnExchangeMadeNeedless(t *testing.T) {
	sizes := []rt.PPM{141, 1, 1, 1, 9, 2, 23, 209, 4, 31, 45, 139, 104, 157, 126, 219, 172, 176, 213, 275}
	kept := map[string]bool{"5": true, "8": true, "11": true, "13": true, "16": true, "17": true, "18": true}
	var candidates []rt.Candidate
	for i, size := range sizes {
		criticality := rt.Low
		if i == 0 || i == 7 {
			criticality = rt.Middle
		}
		candidates = append(candidates, rt.Candidate{ID: fmt.Sprint(i), Size: size * 1_000, Loss: rt.Loss(criticality, size*1_000)})
	}
	may := func(gone []rt.Candidate) bool {
		return lo.CountBy(gone, func(c rt.Candidate) bool { return kept[c.ID] }) <= 1
	}
	fits := func(gone []rt.Candidate) bool {
		return lo.SumBy(gone, func(c rt.Candidate) rt.PPM { return c.Size }) >= 948_001
	}
	gone, ok := rt.LeastLossAmong(candidates, may, fits)
	if !ok || !may(gone) || !fits(gone) {
		t.Fatalf("found %v, %v", gone, ok)
	}
	for i := range gone {
		if fits(slices.Delete(slices.Clone(gone), i, i+1)) {
			t.Errorf("%v need not go: %v", gone[i], gone)
		}
	}
}
