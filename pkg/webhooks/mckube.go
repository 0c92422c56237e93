package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

var (
	spec       = field.NewPath("spec")
	rtSettings = spec.Child("rtSettings")
)

// ValidateMcKube refuses a McKube for what CEL cannot say: names and selectors that nothing can have,
// cores listed twice, budgets that a core could not measure, and a container that another McKube
// governs already. Every error names field, value and bound. The warnings are advice. err is that of ctx, where it ended first.
func ValidateMcKube(ctx context.Context, m *mcv1.McKube, cluster Cluster, granularity int64) (warnings []string, errs field.ErrorList, err error) {
	errs = append(nameErrors(m), selectorErrors(m.Spec.Selector)...)
	if m.Spec.RTSettings == nil {
		return nil, errs, nil
	}
	errs = append(errs, coreErrors(m.Spec.RTSettings)...)
	errs = append(errs, budgetErrors(m.Spec.RTSettings, granularity)...)
	if len(errs) > 0 {
		return nil, errs, nil
	}
	server, invalid := rtdra.ServerOf(m, "", "")
	if invalid != nil {
		return nil, field.ErrorList{field.Invalid(rtSettings, field.OmitValueType{}, invalid.Error())}, nil
	}
	switch taken, err := conflict(ctx, m, cluster); {
	case err != nil:
		return nil, nil, fmt.Errorf("looking for other McKubes of its containers: %w", err)
	case len(taken) > 0:
		return nil, taken, nil
	}
	return append(advice(m, server, granularity), containerAdvice(m, cluster)...), nil, nil
}

// spared refuses a McKube where it could keep no promise: a pod there would start without its claim.
func spared(namespace string) error {
	return field.Forbidden(field.NewPath("metadata", "namespace"), fmt.Sprintf(
		"pods of namespace %q are never sent to the webhooks, so that the cluster and the controller start without them, and cannot be given a real-time core; "+
			"McKube and pod must be in another namespace", namespace))
}

func nameErrors(m *mcv1.McKube) (errs field.ErrorList) {
	for _, name := range []struct {
		field, value string
		problems     func(string) []string
	}{
		{"podname", m.Spec.Podname, validation.IsDNS1123Subdomain},
		{"container", m.Spec.Container, validation.IsDNS1123Label},
		{"node", m.Spec.Node, validation.IsDNS1123Subdomain},
	} {
		if name.value == "" {
			continue
		}
		for _, problem := range name.problems(name.value) {
			errs = append(errs, field.Invalid(spec.Child(name.field), name.value, problem))
		}
	}
	return errs
}

// selectorErrors refuses a selector that fits no entry of the webhook configuration before it is parsed, which takes time in its length.
func selectorErrors(selector *metav1.LabelSelector) field.ErrorList {
	if n := selectorBytes(selector); n > maxEntryBytes {
		return field.ErrorList{field.TooLong(spec.Child("selector"), field.OmitValueType{}, maxEntryBytes)}
	}
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, spec.Child("selector"))
}

// coreErrors holds the list of preferred cores against itself.
func coreErrors(s *mcv1.RTSettings) field.ErrorList {
	if s.Core == nil {
		return nil
	}
	path := rtSettings.Child("core")
	cores, err := mcv1.ParseCores(*s.Core)
	if err != nil {
		return field.ErrorList{field.Invalid(path, *s.Core, "must be a cpuset list, for example \"2-3\" or \"0,2\"")}
	}
	listed := 0
	for part := range strings.SplitSeq(*s.Core, ",") {
		one, err := mcv1.ParseCores(part)
		if err != nil {
			return field.ErrorList{field.Invalid(path, *s.Core, fmt.Sprintf("%q must be a core or a range of cores", part))}
		}
		listed += len(one)
	}
	if listed != len(cores) {
		return field.ErrorList{field.Invalid(path, *s.Core, fmt.Sprintf("must list each core once: %d are listed, %d are different", listed, len(cores)))}
	}
	return nil
}

// budgetErrors refuses budgets that end before anything could notice, and levels that are the same.
func budgetErrors(s *mcv1.RTSettings, granularity int64) (errs field.ErrorList) {
	if s.RuntimeLow < granularity {
		errs = append(errs, field.Invalid(rtSettings.Child("runtime_low"), s.RuntimeLow,
			fmt.Sprintf("must be at least %d microseconds, the precision to which budgets are enforced; a longer period with the same share of the core allows it", granularity)))
	}
	for i, level := range s.Levels {
		same := func(other mcv1.Level) bool { return other.Runtime == level.Runtime }
		if first := slices.IndexFunc(s.Levels, same); first < i {
			errs = append(errs, field.Duplicate(rtSettings.Child("levels").Index(i).Child("runtime"), level.Runtime))
		}
	}
	return errs
}
