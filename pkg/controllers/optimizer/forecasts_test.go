package optimizer_test

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/optimizer"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// perDay is what two machines cost of which one runs from 8 to 18 o'clock.
const perDay = 2*24 + 2*10

func atHour(hour int) float64 {
	if hour >= 8 && hour < 18 {
		return 4
	}
	return 2
}

// The hours of the days before predict the month and the end of the budget, also by a process that has just started.
// An hour of which less than half was read is not taken for one without costs.
func TestSpendingIsPredicted(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.node("n2", "m4", "on-demand")
	w.clock.SetTime(time.Date(2026, 12, 3, 12, 0, 0, 0, time.UTC))
	p := test.CostPolicy("p", func(p *kcloudv1alpha1.CostPolicy) {
		p.Spec.BudgetLimit, p.Spec.MonthlyBudget = ptr.To(15.0*perDay), ptr.To(100.0*perDay)
	})
	w.create(p)
	if f := w.cost().Status.Forecast; f != nil {
		t.Errorf("at once: %+v", f)
	}
	p = w.readCost()
	p.Status.CurrentSpend, p.Status.MonthlySpend = 5*perDay, 2*perDay+8*2+4*4 // since Monday at noon, and since midnight of the first
	p.Status.Accrual.History = &kcloudv1alpha1.AccrualHistory{End: metav1.NewTime(w.clock.Now())}
	for h := range 5 * 24 {
		p.Status.Accrual.History.Averages = append(p.Status.Accrual.History.Averages, atHour((12+h)%24))
	}
	if err := w.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	policies := &optimizer.CostPolicies{Client: w.client, Readings: &optimizer.Readings{Client: w.client, CloudProvider: w.provider, Clock: w.clock}, Recorder: w, Clock: w.clock}
	look := func() kcloudv1alpha1.CostPolicyStatus {
		if _, err := policies.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
			t.Fatal(err)
		}
		return w.readCost().Status
	}
	f := look().Forecast
	if f == nil || f.Method != "SeasonalNaiveDay" || f.ScaledError != 0 || !near(f.Month, 31*perDay) || !near(f.Day, perDay) {
		t.Fatalf("%+v, want %v USD in December and %v a day", f, 31*perDay, perDay)
	}
	if at := w.clock.Now().Add(10 * 24 * time.Hour); f.Exhaustion == nil || f.Exhaustion.Sub(at).Abs() > time.Hour {
		t.Errorf("the budget is spent at %v, want about %v", f.Exhaustion, at)
	}
	if n := series(metrics.CostPolicyForecast); n != 1 {
		t.Errorf("%d series", n)
	}
	w.pass(time.Hour, func() { look() })
	w.clock.SetTime(w.clock.Now().Add(2 * time.Hour)) // in which no controller runs
	w.pass(100*time.Minute, func() { look() })
	s := w.cost().Status // of another process
	if got := s.Accrual.History.Averages[5*24:]; len(got) != 4 || !near(got[0], 4) || got[1] != -1 || got[2] != -1 || !near(got[3], 4) {
		t.Errorf("hours %v, want 4, two that were not read, and 4", got)
	}
	if s.Forecast == nil || math.Abs(s.Forecast.Month-31*perDay) > 0.01*31*perDay {
		t.Errorf("%+v, want %v USD in December", s.Forecast, 31*perDay)
	}
}

// With two weeks of history there is an upper bound, and energy is predicted in kWh.
func TestPowerIsPredictedWithABound(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.clock.SetTime(time.Date(2026, 12, 15, 0, 0, 0, 0, time.UTC))
	w.create(test.PowerPolicy("p"))
	p := w.power()
	p.Status.MonthlyEnergy = 14
	p.Status.Accrual.History = &kcloudv1alpha1.AccrualHistory{End: metav1.NewTime(w.clock.Now())}
	for h := range 14 * 24 {
		p.Status.Accrual.History.Averages = append(p.Status.Accrual.History.Averages, 1000*atHour(h%24)+float64(h*7919%101)) // W
	}
	if err := w.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	f := w.power().Status.Forecast
	if f == nil || f.Method == "Naive" || f.DayUpper == nil || f.Coverage == nil || *f.Coverage < 0.85 || f.Exhaustion != nil {
		t.Fatalf("%+v", f)
	}
	day := float64(perDay) + 24*0.05
	if want := 14 + 17*day; math.Abs(f.Month-want) > 0.01*want || math.Abs(f.Day-day) > 0.01*day || *f.DayUpper < f.Day || *f.DayUpper > 1.1*f.Day {
		t.Errorf("%v kWh, in a day %v, at most %v; want about %v and %v", f.Month, f.Day, *f.DayUpper, want, day)
	}
}

// The hours from now on count, the one that is under way in part, up to the end of the month. 100 USD an hour before noon and 1 after.
func TestPartsOfHoursCount(t *testing.T) {
	for _, c := range []struct {
		now           time.Time
		month, budget float64
		want          float64
		spentAt       string
	}{
		{now: time.Date(2026, 12, 31, 11, 0, 0, 0, time.UTC), want: 112},
		{now: time.Date(2026, 12, 31, 11, 45, 0, 0, time.UTC), want: 37},
		{now: time.Date(2026, 12, 31, 11, 45, 0, 0, time.UTC), month: 30, budget: 50, want: 67, spentAt: "11:00"},
		{now: time.Date(2026, 12, 31, 11, 45, 0, 0, time.UTC), month: 30, budget: 66.5, want: 67, spentAt: "23:00"},
		{now: time.Date(2026, 12, 31, 11, 45, 0, 0, time.UTC), month: 30, budget: 68, want: 67}, // January's hours are not for this month's budget
		{now: time.Date(2026, 12, 31, 11, 45, 0, 0, time.UTC), month: 30, budget: 20, want: 67}, // which is spent
	} {
		w := newWorld(t, machine("m4", 4, 16, 0, 2))
		pool(w)
		w.clock.SetTime(c.now)
		w.create(test.CostPolicy("p", func(p *kcloudv1alpha1.CostPolicy) {
			if c.budget > 0 {
				p.Spec.MonthlyBudget = &c.budget
			}
		}))
		p := w.cost()
		p.Status.MonthlySpend = c.month
		p.Status.Accrual.History = &kcloudv1alpha1.AccrualHistory{End: metav1.NewTime(c.now.Truncate(time.Hour))}
		for h := range 5 * 24 {
			x := 1.0
			if (11+h)%24 < 12 {
				x = 100
			}
			p.Status.Accrual.History.Averages = append(p.Status.Accrual.History.Averages, x)
		}
		if err := w.client.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		f := w.cost().Status.Forecast
		if f == nil || !near(f.Month, c.want) || (f.Exhaustion == nil) != (c.spentAt == "") || f.Exhaustion != nil && f.Exhaustion.UTC().Format("15:04") != c.spentAt {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

// The history keeps two weeks, begins anew after a longer absence, and is not spoilt by a clock that was wrong.
func TestTheHistoryKeepsTwoWeeks(t *testing.T) {
	start := time.Date(2026, 12, 20, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		jumps []time.Duration // of the clock, with as many minutes of readings after each
		read  []time.Duration
		want  int // hours
		last  float64
	}{
		"two hours more":              {jumps: []time.Duration{0}, read: []time.Duration{160 * time.Minute}, want: 336, last: 0},
		"15 days later":               {jumps: []time.Duration{15 * 24 * time.Hour}, read: []time.Duration{100 * time.Minute}, want: 1, last: 0},
		"a day ahead for ten minutes": {jumps: []time.Duration{24 * time.Hour, -24 * time.Hour}, read: []time.Duration{10 * time.Minute, 100 * time.Minute}, want: 336, last: 0},
		"a year ahead for a moment":   {jumps: []time.Duration{366 * 24 * time.Hour, -366 * 24 * time.Hour}, read: []time.Duration{10 * time.Minute, 100 * time.Minute}, want: 336, last: 0},
		"six hours ahead for long":    {jumps: []time.Duration{6 * time.Hour, -6 * time.Hour}, read: []time.Duration{100 * time.Minute, 120 * time.Minute}, want: 332, last: 0},
	} {
		w := newWorld(t, machine("m4", 4, 16, 0, 2))
		pool(w)
		w.clock.SetTime(start)
		w.create(test.CostPolicy("p"))
		p := w.cost()
		p.Status.Accrual.History = &kcloudv1alpha1.AccrualHistory{End: metav1.NewTime(start)}
		for h := range 336 {
			p.Status.Accrual.History.Averages = append(p.Status.Accrual.History.Averages, float64(1000+h))
		}
		if err := w.client.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		policies := &optimizer.CostPolicies{Client: w.client, Readings: &optimizer.Readings{Client: w.client, CloudProvider: w.provider, Clock: w.clock}, Recorder: w, Clock: w.clock}
		for i, jump := range c.jumps {
			w.clock.SetTime(w.clock.Now().Add(jump))
			w.pass(c.read[i], func() {
				if _, err := policies.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
					t.Fatal(err)
				}
			})
		}
		h := w.readCost().Status.Accrual.History
		if len(h.Averages) != c.want || !near(h.Averages[len(h.Averages)-1], c.last) {
			t.Errorf("%s: %d hours to %v, the last ones %v", name, len(h.Averages), h.End, h.Averages[max(0, len(h.Averages)-5):])
		}
	}
}
