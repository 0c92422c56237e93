package optimizer

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/podselection"
)

// CostPolicies keeps the status of CostPolicies: what their pods cost, what was spent, and which limits are exceeded.
type CostPolicies struct {
	Client   client.Client
	Readings *Readings
	Recorder Recorder
	Clock    clock.PassiveClock

	watch     stopwatch // one Reconcile runs at a time
	forecasts forecasts
}

// Register adds the controller to a manager.
func (c *CostPolicies) Register(_ context.Context, m manager.Manager) error {
	return registerPolicies(m, "costpolicy", &kcloudv1alpha1.CostPolicy{}, c)
}

// Reconcile adds up what one policy's pods cost, and writes its status.
func (c *CostPolicies) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.watch.clock = c.Clock
	if c.forecasts == nil {
		c.forecasts = forecasts{}
	}
	return policyLoop[*kcloudv1alpha1.CostPolicy]{
		client: c.Client, recorder: c.Recorder, clock: c.Clock, watch: &c.watch, kind: "CostPolicy",
		status:  func(p *kcloudv1alpha1.CostPolicy) any { return p.Status },
		accrual: func(p *kcloudv1alpha1.CostPolicy) *kcloudv1alpha1.Accrual { return p.Status.Accrual },
		judge:   c.judge,
		observe: func(p *kcloudv1alpha1.CostPolicy) {
			s := p.Status
			metrics.ObserveCostPolicy(p.Name, s.CostPerHour, s.CurrentSpend, s.MonthlySpend, s.BudgetUtilization, len(s.Violations))
			metrics.ObserveCostForecast(p.Name, monthOfForecast(s.Forecast))
		},
		forget: func(name string) {
			metrics.ForgetCostPolicy(name)
			c.forecasts.forget(name)
		},
	}.reconcile(ctx, req.NamespacedName, &kcloudv1alpha1.CostPolicy{})
}

// judge fills the status. It returns the violations that have begun.
func (c *CostPolicies) judge(ctx context.Context, p *kcloudv1alpha1.CostPolicy, now time.Time) ([]kcloudv1alpha1.Violation, error) {
	s := &p.Status
	s.ObservedGeneration = p.Generation
	of := conditions{list: &s.Conditions, generation: p.Generation, now: now}
	if _, _, err := podselection.Parse(p.Spec.Selection); err != nil {
		s.Phase, s.Violations, s.Forecast, s.Packing = kcloudv1alpha1.PolicySuspended, nil, nil, nil
		of.refuse(err)
		return nil, nil
	}
	selected, err := podselection.Read(ctx, c.Client, p.Spec.Selection)
	if err != nil {
		return nil, err
	}
	fleet, m, err := c.Readings.readFleet(ctx)
	if err != nil {
		return nil, err
	}
	t := sumOf(fleet, selected, p.Spec.ResourceCostPolicy)
	earlier := s.CostPerHour
	s.CostPerHour, s.IdleCostPerHour = round(t.cost(), 6), round(t.idle.Cost, 6)
	s.Pods, s.Nodes, s.SpotNodes = t.pods, t.nodes, t.spot
	s.Packing = nil
	if selected.Everything {
		s.Packing = c.Readings.readPacking()
	}
	spent := amounts{s.CurrentSpend, s.MonthlySpend}
	s.Accrual, spent = accrue(s.Accrual, spent, earlier, s.CostPerHour, c.watch.read(p.Name, s.Accrual, now))
	s.CurrentSpend, s.MonthlySpend = round(spent.total, 9), round(spent.month, 9)
	s.BudgetUtilization = round(max(percent(s.CurrentSpend, p.Spec.BudgetLimit), percent(s.MonthlySpend, p.Spec.MonthlyBudget)), 3)
	s.Forecast = c.forecasts.predict(p.Name, s.Accrual, now, 1, s.MonthlySpend,
		budget{limit: p.Spec.BudgetLimit, spent: s.CurrentSpend, ends: now.Add(365 * 24 * time.Hour)}, budget{limit: p.Spec.MonthlyBudget, spent: s.MonthlySpend, ends: endOfMonth(now)})
	of.priced(t, m)
	if p.Annotations[kcloudv1alpha1.AnnotationDisabled] == "true" {
		s.Phase, s.Violations = kcloudv1alpha1.PolicySuspended, nil
		of.suspend()
		return nil, nil
	}
	return of.compare(&s.Phase, &s.Violations, costComparisons(p)), nil
}

// percent of a limit; 0 where there is none.
func percent(value float64, limit *float64) float64 {
	if limit == nil || *limit <= 0 {
		return 0
	}
	return value / *limit * 100
}

func costComparisons(p *kcloudv1alpha1.CostPolicy) []comparison {
	s := p.Status
	list := limit("budgetLimit", p.Spec.BudgetLimit, s.CurrentSpend)
	list = append(list, limit("monthlyBudget", p.Spec.MonthlyBudget, s.MonthlySpend)...)
	list = append(list, limit("costPerHourLimit", p.Spec.CostPerHourLimit, s.CostPerHour)...)
	if most := maxSpotPercentage(p.Spec.SpotInstancePolicy); most != nil && s.Nodes > 0 {
		list = append(list, limit("maxSpotPercentage", most, float64(s.SpotNodes)/float64(s.Nodes)*100)...)
	}
	increase, deviations, known := changes(s.Accrual, s.CostPerHour)
	for _, a := range p.Spec.AlertThresholds {
		switch {
		case a.Type == kcloudv1alpha1.AlertBudgetUsage:
			list = append(list, threshold(string(a.Type), a.Value, s.BudgetUtilization, a.Severity, a.Action))
		case a.Type == kcloudv1alpha1.AlertCostIncrease && known:
			list = append(list, threshold(string(a.Type), a.Value, increase, a.Severity, a.Action))
		case a.Type == kcloudv1alpha1.AlertAnomaly && known:
			list = append(list, threshold(string(a.Type), a.Value, deviations, a.Severity, a.Action))
		}
	}
	return list
}

// maxSpotPercentage is the most spot machines in percent; nil where the policy bounds nothing.
func maxSpotPercentage(p *kcloudv1alpha1.SpotInstancePolicy) *float64 {
	if p == nil {
		return nil
	}
	most := 0.0
	switch {
	case p.Enabled != nil && !*p.Enabled:
	case p.MaxSpotPercentage != nil:
		most = float64(*p.MaxSpotPercentage)
	default:
		return nil
	}
	return &most
}
