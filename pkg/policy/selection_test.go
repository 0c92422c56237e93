package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

func TestTheMostSpecificPolicyHoldsThenTheFirstByName(t *testing.T) {
	all := []v1alpha1.MigrationPolicy{
		*named("everything"), *named("another"),
		*named("web", selecting(map[string]string{"app": "web"})),
		*named("web-here", selecting(map[string]string{"app": "web"}), inNamespaces(map[string]string{"team": "a"})),
		*named("web-there", selecting(map[string]string{"app": "web"}), inNamespaces(map[string]string{"team": "b"})),
		*named("a-web-here", inNamespaces(map[string]string{"team": "a"}), func(p *v1alpha1.MigrationPolicy) {
			p.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
		}),
		*named("going", selecting(map[string]string{"app": "web", "tier": "front"}), func(p *v1alpha1.MigrationPolicy) {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}),
		*named("broken", func(p *v1alpha1.MigrationPolicy) {
			p.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}, {Key: "a", Operator: "Like"}, {Key: "b", Operator: "Like"}}}
		}),
	}
	for _, c := range []struct {
		pod, namespace map[string]string
		want           string
	}{
		{map[string]string{"app": "web", "tier": "front"}, map[string]string{"team": "a"}, "a-web-here"},
		{map[string]string{"app": "web"}, map[string]string{"team": "b"}, "web-there"},
		{map[string]string{"app": "web"}, nil, "web"},
		{map[string]string{"app": "db"}, map[string]string{"team": "a"}, "a-web-here"},
		{nil, nil, "another"},
	} {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		got := policy.Select(all, c.pod, c.namespace)
		if got == nil || got.Name != c.want {
			t.Errorf("%v in %v: %v, want %s", c.pod, c.namespace, got, c.want)
		}
	}
	if got := policy.Select(all[:0], nil, nil); got != nil {
		t.Errorf("of none: %v", got)
	}
	if got := policy.Select([]v1alpha1.MigrationPolicy{*named("web", selecting(map[string]string{"app": "web"}))}, nil, nil); got != nil {
		t.Errorf("for a pod that none selects: %v", got)
	}
}
