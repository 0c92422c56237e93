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

// PowerPolicies keeps the status of PowerPolicies: what their pods draw, the energy, and which limits are exceeded.
type PowerPolicies struct {
	Client   client.Client
	Readings *Readings
	Recorder Recorder
	Clock    clock.PassiveClock

	watch     stopwatch // one Reconcile runs at a time
	forecasts forecasts
}

// Register adds the controller to a manager.
func (c *PowerPolicies) Register(_ context.Context, m manager.Manager) error {
	return registerPolicies(m, "powerpolicy", &kcloudv1alpha1.PowerPolicy{}, c)
}

// Reconcile adds up what one policy's pods draw, and writes its status.
func (c *PowerPolicies) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.watch.clock = c.Clock
	if c.forecasts == nil {
		c.forecasts = forecasts{}
	}
	return policyLoop[*kcloudv1alpha1.PowerPolicy]{
		client: c.Client, recorder: c.Recorder, clock: c.Clock, watch: &c.watch, kind: "PowerPolicy",
		status:  func(p *kcloudv1alpha1.PowerPolicy) any { return p.Status },
		accrual: func(p *kcloudv1alpha1.PowerPolicy) *kcloudv1alpha1.Accrual { return p.Status.Accrual },
		judge:   c.judge,
		observe: func(p *kcloudv1alpha1.PowerPolicy) {
			s := p.Status
			metrics.ObservePowerPolicy(p.Name, s.CurrentPower, s.CurrentEnergy, s.MonthlyEnergy, s.PowerUtilization, len(s.Violations))
			metrics.ObservePowerForecast(p.Name, monthOfForecast(s.Forecast))
		},
		forget: func(name string) {
			metrics.ForgetPowerPolicy(name)
			c.forecasts.forget(name)
		},
	}.reconcile(ctx, req.NamespacedName, &kcloudv1alpha1.PowerPolicy{})
}

// judge fills the status. It returns the violations that have begun.
func (c *PowerPolicies) judge(ctx context.Context, p *kcloudv1alpha1.PowerPolicy, now time.Time) ([]kcloudv1alpha1.Violation, error) {
	s := &p.Status
	s.ObservedGeneration = p.Generation
	of := conditions{list: &s.Conditions, generation: p.Generation, now: now}
	if _, _, err := podselection.Parse(p.Spec.Selection); err != nil {
		s.Phase, s.Violations, s.Forecast = kcloudv1alpha1.PolicySuspended, nil, nil
		of.refuse(err)
		return nil, nil
	}
	selected, err := podselection.Read(ctx, c.Client, p.Spec.Selection)
	if err != nil {
		return nil, err
	}
	fleet, _, err := c.Readings.readFleet(ctx)
	if err != nil {
		return nil, err
	}
	t := sumOf(fleet, selected, nil)
	earlier := s.CurrentPower
	s.CurrentPower, s.IdlePower = round(t.watts(), 1), round(t.idle.Watts, 1)
	s.Pods, s.Nodes = t.pods, t.nodes
	s.PowerUtilization = round(percent(s.CurrentPower, p.Spec.MaxPowerUsage), 3)
	s.PowerEfficiency = 0
	if s.CurrentPower > 0 {
		s.PowerEfficiency = round(t.own.Watts/t.watts()*100, 3)
	}
	drawn := amounts{s.CurrentEnergy * wattsPerKilowatt, s.MonthlyEnergy * wattsPerKilowatt}
	s.Accrual, drawn = accrue(s.Accrual, drawn, earlier, s.CurrentPower, c.watch.read(p.Name, s.Accrual, now))
	s.CurrentEnergy, s.MonthlyEnergy = round(drawn.total/wattsPerKilowatt, 9), round(drawn.month/wattsPerKilowatt, 9)
	s.Forecast = c.forecasts.predict(p.Name, s.Accrual, now, 1.0/wattsPerKilowatt, s.MonthlyEnergy)
	of.modelled(t)
	if p.Annotations[kcloudv1alpha1.AnnotationDisabled] == "true" {
		s.Phase, s.Violations = kcloudv1alpha1.PolicySuspended, nil
		of.suspend()
		return nil, nil
	}
	return of.compare(&s.Phase, &s.Violations, powerComparisons(p)), nil
}

const wattsPerKilowatt = 1000

func powerComparisons(p *kcloudv1alpha1.PowerPolicy) []comparison {
	s := p.Status
	list := limit("maxPowerUsage", p.Spec.MaxPowerUsage, s.CurrentPower)
	if least := p.Spec.PowerEfficiencyTarget; least != nil && s.CurrentPower > 0 {
		c := threshold("powerEfficiencyTarget", *least, s.PowerEfficiency, kcloudv1alpha1.SeverityWarning, "")
		c.below = true
		list = append(list, c)
	}
	increase, deviations, known := changes(s.Accrual, s.CurrentPower)
	for _, a := range p.Spec.PowerAlertThresholds {
		switch {
		case a.Type == kcloudv1alpha1.AlertPowerUsage:
			list = append(list, threshold(string(a.Type), a.Value, s.PowerUtilization, a.Severity, a.Action))
		case a.Type == kcloudv1alpha1.AlertPowerIncrease && known:
			list = append(list, threshold(string(a.Type), a.Value, increase, a.Severity, a.Action))
		case a.Type == kcloudv1alpha1.AlertPowerAnomaly && known:
			list = append(list, threshold(string(a.Type), a.Value, deviations, a.Severity, a.Action))
		}
	}
	return list
}
