package main

import (
	"math"
	"math/rand/v2"
)

// randFixedSum draws n values from least to most whose sum is total, uniformly among all such (R. Stafford,
// 2006; P. Emberson, R. Stafford, R. Davis, WATERS 2010).
func randFixedSum(r *rand.Rand, n int, total, least, most float64) []float64 {
	s := (total - float64(n)*least) / (most - least)
	s = max(0, min(s, float64(n)))
	out := unitFixedSum(r, n, s)
	for i := range out {
		out[i] = least + out[i]*(most-least)
	}
	r.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// unitFixedSum is Stafford's walk through the simplices that make up the section of the unit cube.
func unitFixedSum(r *rand.Rand, n int, s float64) []float64 {
	k := max(min(int(math.Floor(s)), n-1), 0)
	turns := simplexTurns(n, k, s)
	out := make([]float64, n)
	sum, product, column := 0.0, 1.0, k
	for i := n - 1; i >= 1; i-- {
		e := 0.0
		if r.Float64() <= turns[i-1][column] {
			e = 1
		}
		sx := math.Pow(r.Float64(), 1/float64(i))
		sum += (1 - sx) * product * s / float64(i+1)
		product *= sx
		out[n-i-1] = sum + product*e
		s -= e
		column -= int(e)
	}
	out[n-1] = sum + product*s
	return out
}

// simplexTurns are the probabilities of the walk: t[i][j] of going to the side where the value is larger.
func simplexTurns(n, k int, s float64) [][]float64 {
	s1, s2 := make([]float64, n), make([]float64, n)
	for i := range n {
		s1[i] = s - float64(k-i)
		s2[i] = float64(k+n-i) - s
	}
	weights := make([]float64, n+1)
	weights[1] = math.MaxFloat64
	turns := make([][]float64, n-1)
	for i := 2; i <= n; i++ {
		next := make([]float64, n+1)
		turns[i-2] = make([]float64, n)
		for j := range i {
			up, down := weights[j+1]*s1[j]/float64(i), weights[j]*s2[n-i+j]/float64(i)
			next[j+1] = up + down
			whole := next[j+1] + math.SmallestNonzeroFloat64
			if s2[n-i+j] > s1[j] {
				turns[i-2][j] = down / whole
			} else {
				turns[i-2][j] = 1 - up/whole
			}
		}
		weights = next
	}
	return turns
}
