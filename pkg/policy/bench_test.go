package policy_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

// BenchmarkDecide asks a policy of ten rules that all must be evaluated.
func BenchmarkDecide(b *testing.B) {
	p := named("p")
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		rule(name, `pod.metadata.labels["app"] == "db" && (mckube != null && mckube.spec.criticality == "High" || male.score > 0.9)`, v1alpha1.RuleDeny)(p)
	}
	c, errs := policy.Compile(&p.Spec)
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	q := question()
	for b.Loop() {
		if v := c.Decide(b.Context(), q); !v.Allowed {
			b.Fatalf("%+v", v)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	p := named("p", rule("r", `pod.metadata.labels["app"] == "db"`, v1alpha1.RuleDeny))
	for b.Loop() {
		if _, errs := policy.Compile(&p.Spec); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
