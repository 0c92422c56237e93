package rt

import (
	"cmp"
	"slices"
	"sort"
)

// Loss is what it costs that a server with so much bandwidth loses its place, in thousandths of a small Low one. Every
// controller that evicts pods uses this one list of prices. Four Low servers weigh as much as a Middle one, four Middle
// ones as much as a High one; among as many of the same criticalities the larger ones weigh more.
func Loss(c Criticality, charge PPM) int64 {
	return [...]int64{Low: 1_000, Middle: 4_000, High: 16_000}[c] + int64(charge/1_000)
}

// Candidate is something that may go, at its price. Size is what is freed, at most.
type Candidate struct {
	ID   string
	Loss int64
	Size PPM
}

// LeastLoss is the set of candidates that costs least together and without which it fits; of equals the smaller, then
// the first by ID. More of them gone must never harm. It is exact for up to 12 candidates. Beyond, it is the best of
// three greedy choices. Each choice drops the candidates that it did not need and is improved by exchanging one for a
// cheaper one. No candidate goes when it fits already; ok is false when it does not even with all of them gone.
func LeastLoss(candidates []Candidate, fits func(gone []Candidate) bool) (gone []Candidate, ok bool) {
	if fits(nil) {
		return nil, true
	}
	if len(candidates) == 0 || !fits(candidates) {
		return nil, false
	}
	candidates = slices.Clone(candidates)
	slices.SortFunc(candidates, func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
	if len(candidates) > exactVictims {
		return leastOfMany(candidates, fits), true
	}
	return leastOfAll(candidates, fits), true
}

// LeastLossAmong is LeastLoss of the sets that may go together; of a set that may, each part must. It is as exact as LeastLoss; beyond,
// it may find none although there is one.
func LeastLossAmong(candidates []Candidate, may, fits func(gone []Candidate) bool) (gone []Candidate, ok bool) {
	if gone, ok = LeastLoss(candidates, fits); !ok || may(gone) {
		return gone, ok
	}
	both := func(gone []Candidate) bool { return may(gone) && fits(gone) }
	candidates = slices.SortedFunc(slices.Values(candidates), func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
	if len(candidates) > exactVictims {
		gone = leastTaken(candidates, func(sorted []Candidate) []Candidate { return takeAmong(sorted, may, fits) }, both)
	} else {
		gone = leastOfAll(candidates, both)
	}
	if !may(gone) { // all of them, for want of others
		return nil, false
	}
	return gone, true
}

// leastOfAll looks at every subset that is cheaper than the best so far.
func leastOfAll(candidates []Candidate, fits func([]Candidate) bool) []Candidate {
	best := candidates
	gone := make([]Candidate, 0, len(candidates))
	for mask := uint(1); mask < 1<<len(candidates); mask++ {
		gone = gone[:0]
		for i, c := range candidates {
			if mask&(1<<i) != 0 {
				gone = append(gone, c)
			}
		}
		if compareLoss(gone, best) < 0 && fits(gone) {
			best = slices.Clone(gone)
		}
	}
	return best
}

// leastOfMany takes candidates in several orders until it fits.
func leastOfMany(candidates []Candidate, fits func([]Candidate) bool) []Candidate {
	return leastTaken(candidates, func(sorted []Candidate) []Candidate {
		return sorted[:sort.Search(len(sorted), func(n int) bool { return fits(sorted[:n]) })]
	}, fits)
}

// takeAmong takes who may go beside those taken before, until it fits.
func takeAmong(sorted []Candidate, may, fits func([]Candidate) bool) []Candidate {
	var gone []Candidate
	for _, c := range sorted {
		if more := append(gone, c); may(more) {
			if gone = more; fits(gone) {
				break
			}
		}
	}
	return gone
}

// leastTaken is the best of what is taken in several orders, without the candidates that it did not need and with
// cheaper ones in exchange; all candidates when none of that fits.
func leastTaken(candidates []Candidate, take func(sorted []Candidate) []Candidate, fits func([]Candidate) bool) []Candidate {
	best := candidates
	for _, order := range []func(a, b Candidate) int{
		func(a, b Candidate) int { return cmp.Compare(b.Size, a.Size) },
		func(a, b Candidate) int { return cmp.Compare(a.Loss, b.Loss) },
		func(a, b Candidate) int { return cmp.Compare(a.Loss*int64(b.Size), b.Loss*int64(a.Size)) },
	} {
		sorted := slices.Clone(candidates)
		slices.SortStableFunc(sorted, order)
		gone := take(sorted)
		if !fits(gone) {
			continue
		}
		gone = needed(gone, fits)
		for range candidates { // each round makes the set cheaper; more rounds than candidates bring little
			if !cheapen(gone, candidates, fits) {
				break
			}
			gone = needed(gone, fits) // the cheaper one may free so much that others need not go
		}
		if compareLoss(gone, best) < 0 {
			best = gone
		}
	}
	return best
}

// needed drops candidates without whose going it fits, the dearest first.
func needed(gone []Candidate, fits func([]Candidate) bool) []Candidate {
	gone = slices.Clone(gone)
	slices.SortStableFunc(gone, func(a, b Candidate) int { return cmp.Compare(b.Loss, a.Loss) })
	for i := 0; i < len(gone); {
		if fewer := slices.Delete(slices.Clone(gone), i, i+1); fits(fewer) {
			gone = fewer
			continue
		}
		i++
	}
	return gone
}

// cheapen exchanges one of those that go for the cheapest that will do; false when there is none.
func cheapen(gone, candidates []Candidate, fits func([]Candidate) bool) bool {
	byLoss := slices.SortedStableFunc(slices.Values(candidates), func(a, b Candidate) int { return cmp.Compare(a.Loss, b.Loss) })
	for i, old := range gone {
		for _, c := range byLoss {
			if c.Loss >= old.Loss {
				break
			}
			if slices.Contains(gone, c) {
				continue
			}
			if gone[i] = c; fits(gone) {
				return true
			}
			gone[i] = old
		}
	}
	return false
}

// compareLoss compares two sets; the cheaper is less.
func compareLoss(a, b []Candidate) int {
	return cmp.Or(cmp.Compare(lossOf(a), lossOf(b)), cmp.Compare(len(a), len(b)))
}

func lossOf(candidates []Candidate) int64 {
	total := int64(0)
	for _, c := range candidates {
		total += c.Loss
	}
	return total
}
