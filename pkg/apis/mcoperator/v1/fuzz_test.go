package v1_test

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// FuzzParseCores: a list of cores is one, ascending, or refused.
func FuzzParseCores(f *testing.F) {
	for _, seed := range []string{"2-3", "0,2", "", "3-1", "-1", "0-", " 1", "1,,2", "99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		cores, err := v1.ParseCores(list)
		if err == nil && (!slices.IsSorted(cores) || len(cores) > 0 && cores[0] < 0 || len(slices.Compact(slices.Clone(cores))) != len(cores)) {
			t.Fatalf("%q: %v", list, cores)
		}
	})
}

// FuzzValues: what is written for containers is read again; whatever a user wrote is read as something.
func FuzzValues(f *testing.F) {
	f.Add("app", "2-3", "side", "0,2", "app=1,2,side=3")
	f.Add("a", "", "b", "", "=,=")
	f.Fuzz(func(t *testing.T, one, first, other, second, text string) {
		_ = v1.ParseValues(text, one, other)
		if one == other || one == "" || other == "" || strings.ContainsAny(one+other, ",=") || strings.Contains(first+second, "=") {
			return // no names of containers, no values
		}
		want := map[string]string{one: first, other: second}
		got := v1.ParseValues(v1.FormatValues(want), one, other)
		if got[one] != first || got[other] != second {
			t.Fatalf("%q became %q", want, got)
		}
	})
}
