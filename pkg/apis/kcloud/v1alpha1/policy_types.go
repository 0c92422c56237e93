package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// On a NodePool, these annotations name the policy whose limits its machines keep; with an empty value they keep those of none.
// Without the annotation they keep those of every policy that selects all pods.
const (
	AnnotationCostPolicy  = Group + "/cost-policy"
	AnnotationPowerPolicy = Group + "/power-policy"
)

// Selection is which pods a policy is about: those that both selectors select. A selector that is left out selects all.
type Selection struct {
	// namespaceSelector selects namespaces by their labels.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// workloadSelector selects pods by their labels.
	// +optional
	WorkloadSelector *metav1.LabelSelector `json:"workloadSelector,omitempty"`
}

// Everything reports whether the policy is about all pods, and so about all nodes.
func (s Selection) Everything() bool { return s.NamespaceSelector == nil && s.WorkloadSelector == nil }

// AlertSeverity is how much a violation matters.
// +kubebuilder:validation:Enum=info;warning;critical
type AlertSeverity string

// Severities. SeverityCritical is that of every limit.
const (
	SeverityInfo     AlertSeverity = "info"
	SeverityWarning  AlertSeverity = "warning"
	SeverityCritical AlertSeverity = "critical"
)

// AlertAction is what an alert asks for.
// +kubebuilder:validation:Enum=notify;scale_down;pause;terminate
type AlertAction string

// ActionNotify is the only action that is carried out.
const ActionNotify AlertAction = "notify"

// PolicyPhase is how a policy stands.
// +kubebuilder:validation:Enum=Active;Suspended;Violated
type PolicyPhase string

// Phases of a policy.
const (
	// PolicyActive: no limit and no threshold is exceeded.
	PolicyActive PolicyPhase = "Active"
	// PolicySuspended: annotation kcloud.io/optimization-disabled is "true": nothing is compared, and adding up goes on.
	// Or a selector cannot be read: what accrues meanwhile is estimated once it can.
	PolicySuspended PolicyPhase = "Suspended"
	// PolicyViolated: a limit or a threshold is exceeded.
	PolicyViolated PolicyPhase = "Violated"
)

// Conditions of a policy, beside ConditionReady and ConditionDataQuality.
const (
	// ConditionWithinLimits: no limit is exceeded. Thresholds of alerts do not count.
	ConditionWithinLimits = "WithinLimits"
)

// Violation is a limit or a threshold that is exceeded.
type Violation struct {
	// type is the name of the field of the limit, or the type of the alert.
	Type string `json:"type"`
	// limit is the value of the field.
	Limit float64 `json:"limit"`
	// value is what is compared with it.
	Value float64 `json:"value"`
	// severity of the violation.
	Severity AlertSeverity `json:"severity"`
	// action that the alert asks for.
	// +optional
	Action AlertAction `json:"action,omitempty"`
	// since is when the violation was first seen.
	Since metav1.Time `json:"since"`
}

// Accrual is how amounts were added up. It is written together with them, so that no time counts twice or is left out.
type Accrual struct {
	// from is when adding up began.
	From metav1.Time `json:"from"`
	// until is the last reading: everything before it is added up.
	Until metav1.MicroTime `json:"until"`
	// month is the calendar month of UTC that is added up apart, for example 2026-11.
	// +optional
	Month string `json:"month,omitempty"`
	// estimated is the part of the total that fell between two readings more than five minutes apart: while no controller ran.
	// +optional
	Estimated float64 `json:"estimated,omitempty"`
	// hours are the averages of the last 24 hours that were read, and of the one that is not over.
	// +optional
	// +kubebuilder:validation:MaxItems=25
	// +listType=atomic
	Hours []HourlyAverage `json:"hours,omitempty"`
	// history is the averages of the last two weeks, from which forecasts are made.
	// +optional
	History *AccrualHistory `json:"history,omitempty"`
}

// AccrualHistory is the averages of hours that are over.
type AccrualHistory struct {
	// end of the last hour.
	End metav1.Time `json:"end"`
	// averages of the hours, the last one last, in USD per hour or in watts; -1: less than half of the hour was read.
	// +kubebuilder:validation:MaxItems=336
	// +listType=atomic
	Averages []float64 `json:"averages,omitempty"`
}

// Forecast is what is expected, and how good such forecasts of the last week were.
type Forecast struct {
	// method is Naive (the last hour goes on), SeasonalNaiveDay, SeasonalNaiveWeek (the same hour of the day or week before) or HoltWinters.
	Method string `json:"method"`
	// month is what is expected by the end of this calendar month (UTC), with what has added up in it, in USD or kWh.
	Month float64 `json:"month"`
	// day is what is expected in the next 24 hours, in USD or kWh.
	Day float64 `json:"day"`
	// dayUpper is what the next 24 hours stay below, as nine tenths of such forecasts did. It is absent while that did not hold in the past.
	// +optional
	DayUpper *float64 `json:"dayUpper,omitempty"`
	// exhaustion is the hour in which a budget is expected to be spent, of the one that is spent first: monthlyBudget
	// in this month, budgetLimit within a year. It is absent where neither is, or one is spent already.
	// +optional
	Exhaustion *metav1.Time `json:"exhaustion,omitempty"`
	// scaledError is the mean error of the method divided by that of Naive, at most 1: no method is used that did worse.
	ScaledError float64 `json:"scaledError"`
	// coverage is the share of forecasts in the last days whose sum of 24 hours stayed below the upper bound that the ones before gave.
	// +optional
	Coverage *float64 `json:"coverage,omitempty"`
}

// HourlyAverage is the mean over the part of an hour that was read.
type HourlyAverage struct {
	// hour is when it began.
	Hour metav1.Time `json:"hour"`
	// seconds of it that were read.
	Seconds int32 `json:"seconds"`
	// average in USD per hour, or in watts.
	Average float64 `json:"average"`
}
