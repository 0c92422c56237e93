package optimizer

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// conditions writes the conditions of an object.
type conditions struct {
	list       *[]metav1.Condition
	generation int64
	now        time.Time
}

// maxMessage bounds messages, which name what users have written.
const maxMessage = 1024

func (c conditions) set(condition string, status metav1.ConditionStatus, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "..."
	}
	meta.SetStatusCondition(c.list, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message, ObservedGeneration: c.generation, LastTransitionTime: metav1.NewTime(c.now),
	})
}

// refuse says what in the spec cannot be read.
func (c conditions) refuse(err error) {
	c.set(kcloudv1alpha1.ConditionReady, metav1.ConditionFalse, ReasonInvalid, "%s", err)
	meta.RemoveStatusCondition(c.list, kcloudv1alpha1.ConditionWithinLimits)
	meta.RemoveStatusCondition(c.list, kcloudv1alpha1.ConditionDataQuality)
}

// suspend says that nothing is compared.
func (c conditions) suspend() {
	c.set(kcloudv1alpha1.ConditionReady, metav1.ConditionFalse, ReasonSuspended, "Annotation %s is \"true\"", kcloudv1alpha1.AnnotationDisabled)
	meta.RemoveStatusCondition(c.list, kcloudv1alpha1.ConditionWithinLimits)
}

// compare says which limits and thresholds of a policy are exceeded. It returns the violations that have begun.
func (c conditions) compare(phase *kcloudv1alpha1.PolicyPhase, exceeded *[]kcloudv1alpha1.Violation, list []comparison) []kcloudv1alpha1.Violation {
	var begun []kcloudv1alpha1.Violation
	*exceeded, begun = violations(*exceeded, list, c.now)
	*phase = kcloudv1alpha1.PolicyActive
	if len(*exceeded) > 0 {
		*phase = kcloudv1alpha1.PolicyViolated
	}
	kept, text := limitsKept(list)
	c.set(kcloudv1alpha1.ConditionWithinLimits, truth(kept), pick(kept, ReasonKept, ReasonLimitExceeded), "%s", text)
	c.set(kcloudv1alpha1.ConditionReady, metav1.ConditionTrue, ReasonStatusUpToDate, "The status tells what the pods cost and draw")
	return begun
}

// priced says what the figures in USD come from.
func (c conditions) priced(t sums, m market) {
	const condition = kcloudv1alpha1.ConditionDataQuality
	switch {
	case len(t.unpriced) > 0:
		c.set(condition, metav1.ConditionFalse, ReasonPriceUnknown, "The price of node %s is unknown and counts as 0: the pods cost more than status says. spec.resourceCostPolicy can price it", name(t.unpriced))
	case len(m.unread) > 0:
		c.set(condition, metav1.ConditionFalse, ReasonUnreadable, "The cloud provider does not say which machines NodePool %s may open", name(m.unread))
	case len(t.unitPriced) > 0:
		c.set(condition, metav1.ConditionFalse, ReasonDefault, "The price of node %s comes from spec.resourceCostPolicy: the cloud provider has none", name(t.unitPriced))
	default:
		c.set(condition, metav1.ConditionTrue, ReasonModelled, "The prices are the provider's, shared out by what pods request")
	}
}

// modelled says what the figures in watts come from.
func (c conditions) modelled(t sums) {
	const condition = kcloudv1alpha1.ConditionDataQuality
	if len(t.defaulted) > 0 {
		c.set(condition, metav1.ConditionFalse, ReasonDefault, "The watts of node %s come from a default model of its cores, memory and devices: its labels do not tell them", name(t.defaulted))
		return
	}
	c.set(condition, metav1.ConditionTrue, ReasonModelled, "The watts are modelled from those of each machine and what is requested of it")
}
