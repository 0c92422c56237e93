// Package racing lets tests that try every point at which a program may die try some of them only under the race detector.
// It makes them four to fifteen times as slow, and what races at one point nearly always races at its neighbours. Their
// packages are tested whole without it, too (UNIT_WHOLE in the Makefile).
package racing

// Every is the step at which points are tried: n under the race detector, otherwise 1.
func Every(n int) int {
	if enabled {
		return n
	}
	return 1
}
