// Package cost shows what pods and nodes cost and draw, by namespace, workload, node or NodePool, and how the policies
// of costs and power stand. It reads the API only. Report is what is shown, Group one line of it.
package cost

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/allocation"
	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/text"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

const (
	// readTimeout bounds reading the cluster once.
	readTimeout = 30 * time.Second
	// page is how many objects are asked for at a time.
	page = 500
	// hoursPerMonth is the mean, as cloud providers' price lists have it.
	hoursPerMonth = 730
	// labelNodePool names the NodePool of a node. The package does without Karpenter's.
	labelNodePool = "karpenter.sh/nodepool"
	// labelTemplateHash ends the name of a Deployment's ReplicaSet.
	labelTemplateHash = "pod-template-hash"
)

// By is what lines are grouped by.
type By string

// Groupings.
const (
	ByNamespace By = "namespace"
	ByWorkload  By = "workload"
	ByNode      By = "node"
	ByNodePool  By = "nodepool"
)

// Groupings are all of them.
func Groupings() []By { return []By{ByNamespace, ByWorkload, ByNode, ByNodePool} }

// Report is what a cluster costs and draws now.
type Report struct {
	By     By      `json:"by"`
	Groups []Group `json:"groups"`
	// Unused is what nodes cost and draw on which no pod requests anything.
	Unused Group `json:"unused"`
	// Total is the sum of all.
	Total Group `json:"total"`
	// Unpriced are nodes whose price is unknown: they count as 0. Defaulted are those whose watts come from the default model.
	Unpriced  []string `json:"unpricedNodes,omitempty"`
	Defaulted []string `json:"defaultedNodes,omitempty"`
	// Costs and Powers are the policies.
	Costs  []Policy[kcloudv1alpha1.CostPolicyStatus]  `json:"costPolicies,omitempty"`
	Powers []Policy[kcloudv1alpha1.PowerPolicyStatus] `json:"powerPolicies,omitempty"`
}

// Group is one line: costs in USD per hour, power in W. Idle is its share of what is idle on its nodes, and not part of
// the other figures.
type Group struct {
	Name      string  `json:"name"`
	Pods      int     `json:"pods"`
	Cost      float64 `json:"costPerHour"`
	IdleCost  float64 `json:"idleCostPerHour"`
	Power     float64 `json:"power"`
	IdlePower float64 `json:"idlePower"`
}

func (g *Group) add(own, idle allocation.Share, pods int) {
	g.Cost, g.Power, g.Pods = g.Cost+own.Cost, g.Power+own.Watts, g.Pods+pods
	g.IdleCost, g.IdlePower = g.IdleCost+idle.Cost, g.IdlePower+idle.Watts
}

// Policy is how a CostPolicy or a PowerPolicy stands.
type Policy[S any] struct {
	Name   string `json:"name"`
	Status S      `json:"status"`
}

// Read asks the API server for all nodes, pods and policies.
func Read(ctx context.Context, c client.Reader, by By) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	nodes, err := list(ctx, c, &corev1.NodeList{}, "nodes", func(l *corev1.NodeList) []corev1.Node { return l.Items })
	if err != nil {
		return nil, err
	}
	pods, err := list(ctx, c, &corev1.PodList{}, "pods", func(l *corev1.PodList) []corev1.Pod { return l.Items })
	if err != nil {
		return nil, err
	}
	r := Build(nodes, pods, by)
	costs, err := list(ctx, c, &kcloudv1alpha1.CostPolicyList{}, "CostPolicies", func(l *kcloudv1alpha1.CostPolicyList) []kcloudv1alpha1.CostPolicy { return l.Items })
	if err != nil {
		return nil, err
	}
	powers, err := list(ctx, c, &kcloudv1alpha1.PowerPolicyList{}, "PowerPolicies", func(l *kcloudv1alpha1.PowerPolicyList) []kcloudv1alpha1.PowerPolicy { return l.Items })
	if err != nil {
		return nil, err
	}
	for _, p := range costs {
		r.Costs = append(r.Costs, Policy[kcloudv1alpha1.CostPolicyStatus]{Name: p.Name, Status: p.Status})
	}
	for _, p := range powers {
		r.Powers = append(r.Powers, Policy[kcloudv1alpha1.PowerPolicyStatus]{Name: p.Name, Status: p.Status})
	}
	return r, nil
}

// list reads all pages. A cluster without the kind has none of it.
func list[L client.ObjectList, T any](ctx context.Context, c client.Reader, l L, what string, items func(L) []T) ([]T, error) {
	var out []T
	for {
		err := c.List(ctx, l, client.Limit(page), client.Continue(l.GetContinue()))
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", what, err)
		}
		if out = append(out, items(l)...); l.GetContinue() == "" {
			return out, nil
		}
	}
}

// Build shares out what each node costs and draws among its pods by what they request, and groups them.
func Build(nodes []corev1.Node, pods []corev1.Pod, by By) *Report {
	on := map[string][]*corev1.Pod{}
	for i := range pods {
		if p := &pods[i]; p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
		}
	}
	r := &Report{By: by, Unused: Group{Name: "(unused)"}, Total: Group{Name: "total"}}
	groups := map[string]*Group{}
	for i := range nodes {
		r.add(&nodes[i], on[nodes[i].Name], groups)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		r.Groups = append(r.Groups, *groups[name])
	}
	slices.SortStableFunc(r.Groups, func(a, b Group) int { return cmp.Compare(b.Cost+b.IdleCost, a.Cost+a.IdleCost) })
	slices.Sort(r.Unpriced)
	slices.Sort(r.Defaulted)
	return r
}

func (r *Report) add(n *corev1.Node, pods []*corev1.Pod, groups map[string]*Group) {
	m := allocation.Machine{Allocatable: n.Status.Allocatable}
	price, err := strconv.ParseFloat(n.Annotations[v1alpha1.AnnotationPricePerHour], 64)
	if err != nil || !(price > 0 && price < 1e9) {
		price = 0
		r.Unpriced = append(r.Unpriced, n.Name)
	}
	m.Price = price
	var labelled bool
	if m.Power, labelled = powermodel.FromLabels(n.Labels); !labelled {
		m.Power = powermodel.Default(n.Status.Capacity)
		r.Defaulted = append(r.Defaulted, n.Name)
	}
	requests := make([]corev1.ResourceList, len(pods))
	for i, p := range pods {
		requests[i] = resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	}
	shares, idle := m.Shares(requests)
	used := 0.0
	for _, s := range shares {
		used += s.Part
	}
	group := func(name string) *Group {
		if groups[name] == nil {
			groups[name] = &Group{Name: name}
		}
		return groups[name]
	}
	switch r.By {
	case ByNode, ByNodePool:
		g := group(nameOfNode(n, r.By))
		g.add(allocation.Share{}, idle, 0)
		for _, s := range shares {
			g.add(s, allocation.Share{}, 1)
		}
	default:
		for i, p := range pods {
			part := 0.0
			if used > 0 {
				part = shares[i].Part / used
			}
			group(nameOfPod(p, r.By)).add(shares[i], idle.Times(part), 1)
		}
		if used <= 0 {
			r.Unused.add(allocation.Share{}, idle, 0)
		}
	}
	r.Total.add(allocation.Share{}, idle, 0)
	for _, s := range shares {
		r.Total.add(s, allocation.Share{}, 1)
	}
}

func nameOfNode(n *corev1.Node, by By) string {
	if by == ByNode {
		return n.Name
	}
	if pool := n.Labels[labelNodePool]; pool != "" {
		return pool
	}
	return "(none)"
}

// nameOfPod is its namespace, or namespace, kind and name of what makes it.
func nameOfPod(p *corev1.Pod, by By) string {
	if by == ByNamespace {
		return p.Namespace
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return p.Namespace + "/Pod/" + p.Name
	}
	if hash := p.Labels[labelTemplateHash]; owner.Kind == "ReplicaSet" && hash != "" {
		if name, ok := strings.CutSuffix(owner.Name, "-"+hash); ok {
			return p.Namespace + "/Deployment/" + name
		}
	}
	return p.Namespace + "/" + owner.Kind + "/" + owner.Name
}

// lines are the groups, what is unused, and the sum.
func (r *Report) lines() []Group {
	out := slices.Clone(r.Groups)
	if r.Unused != (Group{Name: r.Unused.Name}) {
		out = append(out, r.Unused)
	}
	return append(out, r.Total)
}

// CostText writes the report as a table of dollars, and how the CostPolicies stand.
func (r *Report) CostText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "%s\tPODS\tUSD/HOUR\tIDLE\tUSD/MONTH\n", strings.ToUpper(string(r.By)))
	for _, g := range r.lines() {
		fmt.Fprintf(t, "%s\t%d\t%.4f\t%.4f\t%.2f\n", g.Name, g.Pods, g.Cost, g.IdleCost, (g.Cost+g.IdleCost)*hoursPerMonth)
	}
	if len(r.Costs) > 0 {
		fmt.Fprint(t, "\nCOSTPOLICY\tPHASE\tUSD/HOUR\tTHIS MONTH\tEXPECTED\tIN ALL\tOF BUDGET\tSPENT BY\n")
		for _, p := range r.Costs {
			month, exhaustion := expected(p.Status.Forecast, "")
			fmt.Fprintf(t, "%s\t%s\t%.4f\t%.2f\t%s\t%.2f\t%.1f %%\t%s\n", p.Name, p.Status.Phase, p.Status.CostPerHour, p.Status.MonthlySpend, month, p.Status.CurrentSpend, p.Status.BudgetUtilization, exhaustion)
		}
	}
	for _, p := range r.Costs {
		if k := p.Status.Packing; k != nil {
			fmt.Fprintf(t, "\nAt %s the machines of NodePools cost %.4f USD per hour with %s. No packing of these pods costs less than %.4f; the cheapest that was found costs %.4f\n",
				k.Time.UTC().Format("15:04:05 MST"), k.CostPerHour, text.Plural(int(k.Pods), "pod"), k.LowestCostPerHour, k.PackedCostPerHour)
			break // it is the same in all policies
		}
	}
	if len(r.Unpriced) > 0 {
		fmt.Fprintf(t, "\nThe price of %s is unknown and counts as 0: %s\n", text.Plural(len(r.Unpriced), "node"), strings.Join(r.Unpriced, ", "))
	}
	return t.Flush()
}

// expected is what is predicted of the month, and when a budget will be spent.
func expected(f *kcloudv1alpha1.Forecast, unit string) (month, exhaustion string) {
	if f == nil {
		return "-", "-"
	}
	month, exhaustion = fmt.Sprintf("%.2f%s", f.Month, unit), "-"
	if f.Exhaustion != nil {
		exhaustion = f.Exhaustion.UTC().Format("2006-01-02 15:04 MST")
	}
	return month, exhaustion
}

// PowerText writes the report as a table of watts, and how the PowerPolicies stand.
func (r *Report) PowerText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "%s\tPODS\tWATTS\tIDLE\tKWH/MONTH\n", strings.ToUpper(string(r.By)))
	for _, g := range r.lines() {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.1f\n", g.Name, g.Pods, g.Power, g.IdlePower, (g.Power+g.IdlePower)*hoursPerMonth/1000)
	}
	if len(r.Powers) > 0 {
		fmt.Fprint(t, "\nPOWERPOLICY\tPHASE\tWATTS\tTHIS MONTH\tEXPECTED\tIN ALL\tOF LIMIT\n")
		for _, p := range r.Powers {
			month, _ := expected(p.Status.Forecast, " kWh")
			fmt.Fprintf(t, "%s\t%s\t%.1f\t%.2f kWh\t%s\t%.2f kWh\t%.1f %%\n", p.Name, p.Status.Phase, p.Status.CurrentPower, p.Status.MonthlyEnergy, month, p.Status.CurrentEnergy, p.Status.PowerUtilization)
		}
	}
	fmt.Fprintln(t, "\nWatts are modelled from requests")
	if len(r.Defaulted) > 0 {
		fmt.Fprintf(t, "Those of %s come from a default model: %s\n", text.Plural(len(r.Defaulted), "node"), strings.Join(r.Defaulted, ", "))
	}
	return t.Flush()
}

// JSON writes all of it.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// CSV writes the groups, what is unused and the sum.
func (r *Report) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	rows := [][]string{{string(r.By), "pods", "costPerHour", "idleCostPerHour", "power", "idlePower"}}
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	for _, g := range r.lines() {
		rows = append(rows, []string{g.Name, strconv.Itoa(g.Pods), number(g.Cost), number(g.IdleCost), number(g.Power), number(g.IdlePower)})
	}
	return c.WriteAll(rows)
}
