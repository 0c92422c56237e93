// Package racing has tests that try every point at which a program may die try only some of them under the race detector,
// which makes them four to six times as slow. What races is seldom the point; whether the program goes on right from every
// point is tested without it (UNIT_WHOLE in the Makefile).
package racing

// Every is the step at which points are tried: n under the race detector, otherwise 1.
func Every(n int) int {
	if enabled {
		return n
	}
	return 1
}
