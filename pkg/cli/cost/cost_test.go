package cost_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/cost"
)

// node has 4 cores and 16 GiB, and draws 40 to 120 W. An empty price is unknown.
func node(name, nodePool, price string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}, Labels: map[string]string{
		"karpenter.sh/nodepool": nodePool, v1alpha1.LabelWattsIdle: "40", v1alpha1.LabelWattsMax: "120",
	}}}
	if price != "" {
		n.Annotations[v1alpha1.AnnotationPricePerHour] = price
	}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	n.Status.Allocatable = n.Status.Capacity
	return n
}

// pod requests cores with 4 GiB each.
func pod(namespace, name, on, cores, memory string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.NodeName = on
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cores), corev1.ResourceMemory: resource.MustParse(memory),
	}}}}
	return p
}

func cluster() ([]corev1.Node, []corev1.Pod) {
	web := pod("shop", "web-abc-x", "n1", "2", "8Gi")
	web.Labels = map[string]string{"pod-template-hash": "abc"}
	web.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-abc", Controller: new(true)}}
	over := pod("shop", "over", "n1", "1", "4Gi")
	over.Status.Phase = corev1.PodSucceeded
	return []corev1.Node{node("n1", "a", "2"), node("n2", "a", "2"), node("n3", "", "")},
		[]corev1.Pod{web, over, pod("lab", "probe", "n1", "1", "4Gi"), pod("lab", "bare", "n3", "4", "16Gi"), pod("lab", "waits", "", "4", "16Gi")}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestEveryGroupingIsTheWhole(t *testing.T) {
	nodes, pods := cluster()
	for _, by := range cost.Groupings() {
		r := cost.Build(nodes, pods, by)
		sum := r.Unused
		for _, g := range r.Groups {
			sum.Pods += g.Pods
			sum.Cost, sum.IdleCost = sum.Cost+g.Cost, sum.IdleCost+g.IdleCost
			sum.Power, sum.IdlePower = sum.Power+g.Power, sum.IdlePower+g.IdlePower
		}
		if sum.Pods != 3 || !near(sum.Cost+sum.IdleCost, 4) || !near(sum.Power+sum.IdlePower, 100+40+120) {
			t.Errorf("by %s: %+v", by, sum)
		}
		if !near(sum.Cost, r.Total.Cost) || !near(sum.IdleCost, r.Total.IdleCost) || !near(sum.Power, r.Total.Power) || !near(sum.IdlePower, r.Total.IdlePower) || r.Total.Pods != 3 {
			t.Errorf("by %s: the groups are %+v, the total %+v", by, sum, r.Total)
		}
		if strings.Join(r.Unpriced, " ") != "n3" || len(r.Defaulted) != 0 {
			t.Errorf("by %s: unpriced %v, defaulted %v", by, r.Unpriced, r.Defaulted)
		}
	}
}

func TestGroupsAreNamedByWhatMakesTheirPods(t *testing.T) {
	nodes, pods := cluster()
	for by, want := range map[cost.By]string{
		cost.ByNamespace: "shop lab", cost.ByWorkload: "shop/Deployment/web lab/Pod/probe lab/Pod/bare",
		cost.ByNode: "n1 n2 n3", cost.ByNodePool: "a (none)",
	} {
		var names []string
		for _, g := range cost.Build(nodes, pods, by).Groups {
			names = append(names, g.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
}

func TestReportsAreWritten(t *testing.T) {
	nodes, pods := cluster()
	r := cost.Build(nodes, pods, cost.ByNamespace)
	r.Costs = []cost.Policy[kcloudv1alpha1.CostPolicyStatus]{{Name: "team", Status: kcloudv1alpha1.CostPolicyStatus{Phase: kcloudv1alpha1.PolicyViolated, CostPerHour: 4, Packing: &kcloudv1alpha1.Packing{Time: metav1.NewTime(time.Date(2026, 12, 13, 9, 0, 5, 0, time.UTC)), Pods: 7, CostPerHour: 4, LowestCostPerHour: 2.5, PackedCostPerHour: 3}, MonthlySpend: 12.5, Forecast: &kcloudv1alpha1.Forecast{Month: 20, Exhaustion: &metav1.Time{Time: time.Date(2026, 12, 13, 9, 0, 0, 0, time.UTC)}}, BudgetUtilization: 125}}}
	r.Powers = []cost.Policy[kcloudv1alpha1.PowerPolicyStatus]{{Name: "plant", Status: kcloudv1alpha1.PowerPolicyStatus{Phase: kcloudv1alpha1.PolicyActive, MonthlyEnergy: 3, PowerUtilization: 50}}}
	var dollars, watts, data, rows bytes.Buffer
	for _, err := range []error{r.CostText(&dollars), r.PowerText(&watts), r.JSON(&data), r.CSV(&rows)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"NAMESPACE  PODS  USD/HOUR", "shop       1     1.0000    0.3333", "(unused)   0     0.0000    2.0000", "total      3     1.5000    2.5000", "team", "125.0 %", "20.00", "2026-12-13 09:00 UTC", "At 09:00:05 UTC the machines of NodePools cost 4.0000 USD per hour with 7 pods. No packing of these pods costs less than 2.5000; the cheapest that was found costs 3.0000", "The price of 1 node is unknown and counts as 0: n3"} {
		if !strings.Contains(dollars.String(), want) {
			t.Errorf("no %q in\n%s", want, dollars.String())
		}
	}
	for _, want := range []string{"WATTS", "plant", "3.00 kWh", "  -  ", "50.0 %", "Watts are modelled"} {
		if !strings.Contains(watts.String(), want) {
			t.Errorf("no %q in\n%s", want, watts.String())
		}
	}
	back := cost.Report{}
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || !near(back.Total.Cost, 1.5) || len(back.Costs) != 1 {
		t.Errorf("%v, %+v", err, back)
	}
	table, err := csv.NewReader(&rows).ReadAll()
	if err != nil || len(table) != 5 || strings.Join(table[4][:3], " ") != "total 3 1.5" {
		t.Errorf("%v, %v", err, table)
	}
}
