package optimizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// comparison is one limit or threshold of a policy with what is compared with it. The violation's Since is not set.
type comparison struct {
	kcloudv1alpha1.Violation
	isLimit bool // not the threshold of an alert
	below   bool // the limit is the least, not the most
}

func (c comparison) exceeded() bool {
	if c.below {
		return c.Value < c.Limit*(1-rounding)
	}
	return c.Value > c.Limit*(1+rounding)
}

// limit compares a value with a limit; nothing where there is none.
func limit(field string, most *float64, value float64) []comparison {
	if most == nil {
		return nil
	}
	return []comparison{{isLimit: true, Violation: kcloudv1alpha1.Violation{Type: field, Limit: *most, Value: round(value, 6), Severity: kcloudv1alpha1.SeverityCritical}}}
}

func threshold(kind string, most, value float64, severity kcloudv1alpha1.AlertSeverity, action kcloudv1alpha1.AlertAction) comparison {
	return comparison{Violation: kcloudv1alpha1.Violation{Type: kind, Limit: most, Value: round(value, 6), Severity: severity, Action: action}}
}

// changes are by how many percent a rate is above the mean of the hours before, and how many standard deviations away from it.
func changes(a *kcloudv1alpha1.Accrual, rate float64) (increase, deviations float64, known bool) {
	mean, deviation, known := history(a)
	if !known {
		return 0, 0, false
	}
	return (rate/mean - 1) * 100, math.Abs(rate-mean) / deviation, true
}

// violations returns the comparisons that are exceeded, and those of them that were not before. A violation that goes
// on keeps the time at which it began.
func violations(before []kcloudv1alpha1.Violation, list []comparison, now time.Time) (all, begun []kcloudv1alpha1.Violation) {
	for _, c := range list {
		if !c.exceeded() {
			continue
		}
		v := c.Violation
		v.Since = metav1.NewTime(now.Truncate(time.Second))
		if i := slices.IndexFunc(before, func(b kcloudv1alpha1.Violation) bool { return b.Type == v.Type && b.Limit == v.Limit }); i >= 0 {
			v.Since = before[i].Since
		} else {
			begun = append(begun, v)
		}
		all = append(all, v)
	}
	return all, begun
}

// limitsKept says whether no limit is exceeded, and names those that are.
func limitsKept(list []comparison) (kept bool, text string) {
	var exceeded []string
	limits := 0
	for _, c := range list {
		if !c.isLimit {
			continue
		}
		limits++
		if c.exceeded() {
			exceeded = append(exceeded, describe(c.Violation))
		}
	}
	switch {
	case limits == 0:
		return true, "The policy has no limit"
	case len(exceeded) == 0:
		return true, fmt.Sprintf("%d limits are kept", limits)
	}
	return false, strings.Join(exceeded, "; ")
}

// describe tells a violation in the words of the fields.
func describe(v kcloudv1alpha1.Violation) string {
	return fmt.Sprintf("%s is %v, and the value is %v", v.Type, v.Limit, v.Value)
}
