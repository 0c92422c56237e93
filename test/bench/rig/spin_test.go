package rig

import (
	"slices"
	"testing"
)

func TestSpinnerNeverEndsItsFirstJob(t *testing.T) {
	got := Spinner{Core: 1, Nice: -20, Start: 5}.arguments()
	for _, want := range []string{"--core=1", "--nice=-20", "--start=5", "--period=10m0s", "--work=20m0s", "--policy=other"} {
		if !slices.Contains(got, want) {
			t.Errorf("got %q; want %s among them", got, want)
		}
	}
}

func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "a\n": "a", "a\nb c\n": "b c"} {
		if got := lastLine(text); got != want {
			t.Errorf("of %q got %q; want %q", text, got, want)
		}
	}
}
