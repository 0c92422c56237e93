package chart

import (
	"slices"
	"testing"
)

func TestOverrideReplacesFlagsOfTheSameName(t *testing.T) {
	got := Override([]string{"--a=1", "--ab=2", "--c"}, "--a=3", "--d=4")
	if want := []string{"--ab=2", "--c", "--a=3", "--d=4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
