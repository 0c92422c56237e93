package policy

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/policy/male"
)

// Question is whether a pod may be migrated.
type Question struct {
	Pod *corev1.Pod
	// Source is the node that it is on, Target the one it would go to; nil while that is not known.
	Source, Target *corev1.Node
	Trigger        v1alpha1.MigrationTrigger
	// McKube governs the pod; nil for none.
	McKube *mcv1.McKube
	// Budget is how many more migrations each limit allows now, by the names in BudgetNames.
	Budget map[string]int64
	Now    time.Time
}

// maleView is variable male.
type maleView struct {
	// Given: the pod says one of the three at least.
	Given    bool    `json:"given"`
	Accuracy float64 `json:"accuracy"`
	Latency  float64 `json:"latency"`
	Energy   float64 `json:"energy"`
	// Score is of the default weights, Bucket the default one that it falls into.
	Score  float64 `json:"score"`
	Bucket string  `json:"bucket"`
	// Class is A, B or C, and Criticality the McKube's word for it.
	Class       string `json:"class"`
	Criticality string `json:"criticality"`
	// Problem says which value could not be read; empty: none.
	Problem string `json:"problem"`
}

func maleOf(pod *corev1.Pod) maleView {
	v, err := male.Of(pod.Labels, pod.Annotations)
	score, class := v.Score(male.DefaultWeights), v.Class()
	out := maleView{
		Given: v.Given, Accuracy: v.Accuracy, Latency: v.Latency, Energy: v.Energy,
		Score: score, Bucket: male.DefaultBuckets.Of(score), Class: string(class), Criticality: class.Criticality().String(),
	}
	if err != nil {
		out.Problem = err.Error()
	}
	return out
}

// budgetView is variable budget. What is not known is not there.
type budgetView struct {
	SourceNode   *int64 `json:"sourceNode,omitempty"`
	TargetNode   *int64 `json:"targetNode,omitempty"`
	Namespace    *int64 `json:"namespace,omitempty"`
	Cluster      *int64 `json:"cluster,omitempty"`
	WorkloadHour *int64 `json:"workloadHour,omitempty"`
}

// Names of what is left of the limits.
const (
	BudgetSourceNode   = "sourceNode"
	BudgetTargetNode   = "targetNode"
	BudgetNamespace    = "namespace"
	BudgetCluster      = "cluster"
	BudgetWorkloadHour = "workloadHour"
)

// BudgetNames are all of them.
var BudgetNames = []string{BudgetSourceNode, BudgetTargetNode, BudgetNamespace, BudgetCluster, BudgetWorkloadHour}

// The variables of expressions.
const (
	variablePod     = "pod"
	variableSource  = "source"
	variableTarget  = "target"
	variableTrigger = "trigger"
	variableMcKube  = "mckube"
	variableMale    = "male"
	variableBudget  = "budget"
	variableNow     = "now"
)

// objects are the variables that have fields.
var objects = map[string]reflect.Type{
	variablePod: reflect.TypeFor[corev1.Pod](), variableSource: reflect.TypeFor[corev1.Node](), variableTarget: reflect.TypeFor[corev1.Node](),
	variableMcKube: reflect.TypeFor[mcv1.McKube](), variableMale: reflect.TypeFor[maleView](), variableBudget: reflect.TypeFor[budgetView](),
}

// see is what expressions see of a question.
func see(q Question) map[string]any {
	budget := map[string]any{}
	for _, name := range BudgetNames {
		if left, ok := q.Budget[name]; ok {
			budget[name] = left
		}
	}
	return map[string]any{
		variablePod:     native(reflect.ValueOf(q.Pod)),
		variableSource:  native(reflect.ValueOf(q.Source)),
		variableTarget:  native(reflect.ValueOf(q.Target)),
		variableTrigger: string(q.Trigger),
		variableMcKube:  native(reflect.ValueOf(q.McKube)),
		variableMale:    native(reflect.ValueOf(maleOf(q.Pod))),
		variableBudget:  budget,
		variableNow:     q.Now.UTC(),
	}
}
