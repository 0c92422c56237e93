package v1_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

func TestFormatValues(t *testing.T) {
	for want, values := range map[string]map[string]string{
		"20000":                 {"app": "20000"},
		"":                      {"app": ""},
		"app=0,2,log=1":         {"log": "1", "app": "0,2"},
		"app=,log=high,proxy=3": {"log": "high", "proxy": "3", "app": ""},
	} {
		if got := mcv1.FormatValues(values); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestValuesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z]([-a-z0-9]{0,8}[a-z0-9])?`)
		value := rapid.SampledFrom([]string{"", "1", "0,2", "2-3,7", "low"})
		values := rapid.MapOfN(name, value, 1, 4).Draw(t, "values")
		back := mcv1.ParseValues(mcv1.FormatValues(values), slices.Collect(maps.Keys(values))...)
		if !maps.Equal(back, values) {
			t.Fatalf("%v became %v", values, back)
		}
	})
}

func TestUserNode(t *testing.T) {
	asked := mckube(mcv1.McKubeSpec{Node: "n1"})
	filled := asked.DeepCopy()
	filled.Annotations = map[string]string{mcv1.AnnotationFilledNode: "n1"}
	moved := filled.DeepCopy()
	moved.Spec.Node = "n2"
	for want, m := range map[string]*mcv1.McKube{"n1": asked, "": filled, "n2": moved} {
		if got := mcv1.UserNode(m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
