package policy_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

// says compiles a policy with one rule and asks it.
func says(t *testing.T, expression string, q policy.Question) policy.Verdict {
	t.Helper()
	c, errs := policy.Compile(&named("p", rule("r", expression, v1alpha1.RuleDeny)).Spec)
	if len(errs) > 0 {
		t.Fatalf("%s: %v", expression, errs)
	}
	return c.Decide(t.Context(), q)
}

func TestExpressionsSeeEverything(t *testing.T) {
	for _, expression := range []string{
		`pod.metadata.labels["app"] == "web"`,
		`pod.metadata.namespace == "default" && pod.metadata.?labels["no"].orValue("none") == "none"`,
		`pod.spec.containers.all(c, c.image.startsWith("app:"))`,
		`quantity(pod.spec.containers[0].resources.requests["cpu"]).isLessThan(quantity("1"))`,
		`pod.spec.containers[0].livenessProbe.httpGet.port == "http"`,
		`now - pod.metadata.creationTimestamp == duration("1h")`,
		`now.getHours() == 12 && now.getDayOfWeek() == 6`,
		`pod.spec.priority == 7 && !has(pod.spec.hostNetwork) && pod.status.phase == "Running"`,
		`source.metadata.labels["zone"] != target.metadata.labels["zone"]`,
		`target != null && target.spec.unschedulable`,
		`trigger in ["Cost", "Power"] && trigger != "Manual"`,
		`mckube.spec.criticality == "High" && mckube.spec.rtSettings.period == 10000`,
		`mckube.spec.escalation.recoveryDelay == duration("5s")`,
		`male.given && male.score > 0.38 && male.score < 0.4 && male.class == "C" && male.criticality == "High" && male.bucket == "male-medium" && male.problem == ""`,
		`budget.sourceNode == 2 && budget.cluster > 4 && !has(budget.namespace)`,
		`url("https://example.com/x").getHost() == "example.com"`,
	} {
		if v := says(t, expression, question()); v.Allowed || v.Rule != "r" || v.Reason != "r" {
			t.Errorf("%s: %+v", expression, v)
		}
	}
}

func TestWhatIsNotThereIsNull(t *testing.T) {
	q := question()
	q.Target, q.Source, q.McKube, q.Budget = nil, nil, nil, nil
	if v := says(t, `target == null && source == null && mckube == null && !has(budget.cluster)`, q); v.Rule != "r" || v.Reason != "r" {
		t.Errorf("%+v", v)
	}
}

// Every mistake is found when the policy is written, with its field, its place, and what would be right.
func TestMistakesAreExplained(t *testing.T) {
	for expression, want := range map[string][]string{
		`pod.metadata.lables["app"] == "web"`:        {"spec.rules[0].expression", "line 1, column 13", "undefined field 'lables'", "did you mean labels?"},
		"true &&\n  pd.metadata.name == \"x\"":       {"line 2, column 3", "undeclared reference to 'pd'", "budget, male, mckube, now, pod, source, target, trigger", "did you mean pod?"},
		`pod.metadata.name`:                          {"yields a value of type string", "must yield a bool"},
		`pod.spec.priority == "7"`:                   {"no matching overload", "(int, string)"},
		`trigger == "Costs"`:                         {"line 1, column 12", `trigger is never "Costs"`, "RTPressure"},
		`"Costs" != trigger`:                         {`trigger is never "Costs"`},
		`trigger in ["Cost", "RTPresure"]`:           {`trigger is never "RTPresure"`},
		`pod.metadata.managedFields.size() > 0`:      {"undefined field 'managedFields'"},
		`now == "2026-11-21"`:                        {"no matching overload", "timestamp"},
		`pod.metadata.name.matches("(")`:             {"line 1", "invalid matches argument"},
		`duration("1 hour") == duration("1h")`:       {"invalid duration argument"},
		`1 +`:                                        {"line 1, column 4", "Syntax error"},
		`pod.spec.containers.exists(c, c.cpu > 1)`:   {"undefined field 'cpu'"},
		`male.accurancy > 0.5 || budget.clusters> 1`: {"did you mean accuracy?", "did you mean cluster?"},
	} {
		_, errs := policy.Compile(&named("p", rule("r", expression, v1alpha1.RuleDeny)).Spec)
		if len(errs) != 1 {
			t.Errorf("%s: %v", expression, errs)
			continue
		}
		for _, part := range want {
			if !strings.Contains(errs[0].Error(), part) {
				t.Errorf("%s: %s\nlacks %q", expression, errs[0], part)
			}
		}
	}
}

func TestAnEvaluationThatFailsDenies(t *testing.T) {
	for expression, want := range map[string]string{
		`pod.metadata.labels["no"] == "x"`:     "no such key: no",
		`target.metadata.labels["zone"] != ""`: "rule r cannot be evaluated",
	} {
		q := question()
		q.Target = nil
		c, errs := policy.Compile(&named("p", rule("r", expression, v1alpha1.RuleAllow)).Spec)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if v := c.Decide(t.Context(), q); v.Allowed || v.Rule != "r" || !strings.Contains(v.Reason, want) {
			t.Errorf("%s: %+v", expression, v)
		}
	}
}

func TestAnExpressionThatCostsTooMuchDenies(t *testing.T) {
	q := question()
	for len(q.Pod.Spec.Containers) < 200 {
		q.Pod.Spec.Containers = append(q.Pod.Spec.Containers, q.Pod.Spec.Containers[0])
	}
	v := says(t, `pod.spec.containers.all(a, pod.spec.containers.all(b, pod.spec.containers.all(c, a.name == b.name && b.name == c.name)))`, q)
	if v.Allowed || !strings.Contains(v.Reason, "costs more than the limit") {
		t.Errorf("%+v", v)
	}
}

func TestTheFirstRuleThatHoldsDecides(t *testing.T) {
	c, errs := policy.Compile(&named("p",
		rule("never", `trigger == "Power"`, v1alpha1.RuleDeny),
		rule("web", `pod.metadata.labels["app"] == "web"`, v1alpha1.RuleAllow),
		rule("all", `true`, v1alpha1.RuleDeny),
		func(p *v1alpha1.MigrationPolicy) { p.Spec.Rules[2].Message = "nothing else moves" },
	).Spec)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if v := c.Decide(t.Context(), question()); !v.Allowed || v.Rule != "web" || v.Reason != "web" {
		t.Errorf("%+v", v)
	}
	q := question()
	q.Pod.Labels["app"] = "db"
	if v := c.Decide(t.Context(), q); v.Allowed || v.Rule != "all" || v.Reason != "nothing else moves" {
		t.Errorf("%+v", v)
	}
}

func TestWindowsHoldBackWhatIsOptional(t *testing.T) {
	c, errs := policy.Compile(&named("p", open("0 2 * * *", time.Hour), open("30 11 * * 6", 30*time.Minute)).Spec)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	q := question() // noon: the second has just closed
	if v := c.Decide(t.Context(), q); v.Allowed || !strings.Contains(v.Reason, "the next one opens at 2026-11-22T02:00:00Z") {
		t.Errorf("%+v", v)
	}
	for _, trigger := range []v1alpha1.MigrationTrigger{v1alpha1.TriggerRTPressure, v1alpha1.TriggerInterruption, v1alpha1.TriggerRepair, v1alpha1.TriggerEviction, v1alpha1.TriggerDrain} {
		q.Trigger = trigger
		if v := c.Decide(t.Context(), q); !v.Allowed {
			t.Errorf("%s: %+v", trigger, v)
		}
	}
	q = question()
	for at, want := range map[time.Duration]bool{-31 * time.Minute: false, -30 * time.Minute: true, -time.Nanosecond: true, 14 * time.Hour: true, 15*time.Hour - 1: true, 15 * time.Hour: false} {
		q.Now = noon.Add(at)
		if v := c.Decide(t.Context(), q); v.Allowed != want {
			t.Errorf("%s: %+v, want %t", q.Now, v, want)
		}
	}
	q.Now = noon.Add(14 * time.Hour).In(time.FixedZone("elsewhere", 5*3600)) // the same moment: schedules are in UTC
	if v := c.Decide(t.Context(), q); !v.Allowed {
		t.Errorf("elsewhere: %+v", v)
	}
}

func TestSchedulesAndEnginesThatCannotBeAreRefused(t *testing.T) {
	engine := func(e v1alpha1.PolicyEngine) func(*v1alpha1.MigrationPolicy) {
		return func(p *v1alpha1.MigrationPolicy) { p.Spec.PolicyEngine = &e }
	}
	for want, change := range map[string]func(*v1alpha1.MigrationPolicy){
		"spec.windows[0].schedule: Invalid value: \"0 25 * * *\"": open("0 25 * * *", time.Hour),
		"it names a time zone":          open("CRON_TZ=Asia/Seoul 0 2 * * *", time.Hour),
		"it never opens":                open("0 0 31 2 *", time.Hour),
		"must be five fields":           open("@every 1s", time.Hour),
		"must be from 1m0s to 168h0m0s": open("0 2 * * *", time.Second),
		"spec.policyEngine.url":         engine(v1alpha1.PolicyEngine{URL: "https://me:secret@example.com"}),
		"must be http:// or https://":   engine(v1alpha1.PolicyEngine{URL: "ftp://example.com"}),
		"must be https where there is":  engine(v1alpha1.PolicyEngine{URL: "http://example.com", TokenSecret: &v1alpha1.SecretKey{Name: "a", Key: "b"}}),
		"spec.policyEngine.caBundle":    engine(v1alpha1.PolicyEngine{URL: "https://example.com", CABundle: "none"}),
		"spec.policyEngine.timeout":     engine(v1alpha1.PolicyEngine{URL: "https://example.com", Timeout: &metav1.Duration{Duration: time.Hour}}),
		"spec.selector.matchLabels":     selecting(map[string]string{"no label": "x"}),
		"spec.rules[0].action":          rule("r", "true", "Perhaps"),
	} {
		_, errs := policy.Compile(&named("p", change).Spec)
		if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), want) {
			t.Errorf("%v\nlacks %q", errs, want)
		}
		if strings.Contains(errs.ToAggregate().Error(), "secret@") {
			t.Errorf("the password is told: %v", errs)
		}
	}
}

// Whatever is written as an expression is refused or can be asked, and what is asked answers.
func FuzzCompile(f *testing.F) {
	for _, text := range []string{
		`pod.metadata.labels["app"] == "web"`, `trigger in ["Cost"]`, `now - pod.metadata.creationTimestamp > duration("1h")`,
		`[1,2,3].map(x, x * 2).exists(y, y > 5)`, `"a".matches("[a-z]+") || quantity("1").isInteger()`, "true\n&&\tfalse", `pod == pod`, `target.metadata == source.metadata`,
	} {
		f.Add(text)
	}
	q := question()
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			t.Skip("longer than a rule may be")
		}
		c, errs := policy.Compile(&named("p", rule("r", text, v1alpha1.RuleAllow)).Spec)
		if (c == nil) == (len(errs) == 0) {
			t.Fatalf("%q: %v and %v", text, c, errs)
		}
		if c != nil {
			c.Decide(t.Context(), q)
		}
	})
}

func FuzzWindow(f *testing.F) {
	for _, text := range []string{"0 2 * * *", "*/0 * * * *", "TZ=UTC 0 2 * * *", "CRON_TZ=", "0 0 29 2 *", "@reboot", "1-5/2 ? L * 8"} {
		f.Add(text, int64(time.Hour), noon.Unix())
	}
	f.Fuzz(func(t *testing.T, schedule string, duration, at int64) {
		c, errs := policy.Compile(&named("p", open(schedule, time.Duration(duration))).Spec)
		if len(errs) > 0 {
			return
		}
		q := question()
		q.Now = time.Unix(at%(1<<33), 0)
		c.Decide(t.Context(), q)
	})
}
