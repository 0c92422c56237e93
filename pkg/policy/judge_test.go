package policy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

// court is a judge over objects.
func court(t *testing.T, fallback *v1alpha1.PolicyEngine, objects ...client.Object) (*policy.Judge, client.WithWatch) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"team": "a"}}})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return policy.NewJudge(policy.Options{
		Client: c, Secrets: c, Namespace: "mainspring-system", Clock: clocktesting.NewFakePassiveClock(noon), Default: fallback,
	}), c
}

// engine answers everything with body, and counts.
func engine(t *testing.T, body string) (url string, asked func() int) {
	t.Helper()
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		io.WriteString(w, body) //nolint:errcheck // the caller sees what comes
	}))
	t.Cleanup(server.Close)
	return server.URL, func() int { return n }
}

func asking(e v1alpha1.PolicyEngine) func(*v1alpha1.MigrationPolicy) {
	return func(p *v1alpha1.MigrationPolicy) { p.Spec.PolicyEngine = &e }
}

func decide(t *testing.T, j *policy.Judge, q policy.Question) v1alpha1.MigrationDecision {
	t.Helper()
	d, err := j.Decide(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWithoutPolicyItIsAllowed(t *testing.T) {
	j, _ := court(t, nil, named("others", selecting(map[string]string{"app": "db"})))
	d := decide(t, j, question())
	if !d.Allowed || d.Policy != "" || d.Engine != "" || d.Reason != "no MigrationPolicy selects the pod" {
		t.Errorf("%+v", d)
	}
}

func TestADecisionSaysWhoDecided(t *testing.T) {
	url, asked := engine(t, `{"allowed":true,"reason":"go"}`)
	j, _ := court(t, nil,
		named("web", selecting(map[string]string{"app": "web"}), inNamespaces(map[string]string{"team": "a"}),
			rule("no-cost", `trigger == "Cost"`, v1alpha1.RuleDeny), asking(v1alpha1.PolicyEngine{URL: url})),
		named("all"),
	)
	d := decide(t, j, question())
	if d.Allowed || d.Policy != "web" || d.Rule != "no-cost" || d.Engine != "" || d.Reason != "MigrationPolicy web: no-cost" || asked() != 0 {
		t.Errorf("%+v, the engine was asked %d times", d, asked())
	}
	q := question()
	q.Trigger = v1alpha1.TriggerManual
	if d := decide(t, j, q); !d.Allowed || d.Engine != policy.EngineAllow || d.Reason != "the policy engine says: go" || asked() != 1 {
		t.Errorf("%+v", d)
	}
	if d := decide(t, j, q); !d.Allowed || d.Engine != policy.EngineCached || asked() != 1 {
		t.Errorf("%+v", d)
	}
}

func TestAnEngineMayDenyWhatRulesAllow(t *testing.T) {
	url, _ := engine(t, `{"allowed":false}`)
	j, _ := court(t, &v1alpha1.PolicyEngine{URL: url})
	if d := decide(t, j, question()); d.Allowed || d.Engine != policy.EngineDeny || d.Reason != "the policy engine says" {
		t.Errorf("the default engine: %+v", d)
	}
}

// What no answer counts as: by the policy, or by whether the pod would be worse off if it stayed.
func TestNoAnswerCountsAsThePolicySays(t *testing.T) {
	const lies = `{"allowed":"yes"}`
	for _, c := range []struct {
		failure v1alpha1.FailurePolicy
		trigger v1alpha1.MigrationTrigger
		allowed bool
		says    string
	}{
		{"", v1alpha1.TriggerCost, false, policy.EngineErrorClosed},
		{"", v1alpha1.TriggerConsolidation, false, policy.EngineErrorClosed},
		{"", v1alpha1.TriggerManual, false, policy.EngineErrorClosed},
		{"", v1alpha1.TriggerResourcePressure, false, policy.EngineErrorClosed},
		{"", v1alpha1.TriggerRTPressure, true, policy.EngineErrorOpen},
		{"", v1alpha1.TriggerInterruption, true, policy.EngineErrorOpen},
		{"", v1alpha1.TriggerEviction, true, policy.EngineErrorOpen},
		{v1alpha1.FailureRules, v1alpha1.TriggerCost, true, policy.EngineErrorOpen},
		{v1alpha1.FailureAllow, v1alpha1.TriggerCost, true, policy.EngineErrorOpen},
		{v1alpha1.FailureDeny, v1alpha1.TriggerRTPressure, false, policy.EngineErrorClosed},
	} {
		url, _ := engine(t, lies)
		j, _ := court(t, nil, named("p", asking(v1alpha1.PolicyEngine{URL: url, FailurePolicy: c.failure})))
		q := question()
		q.Trigger = c.trigger
		d := decide(t, j, q)
		if d.Allowed != c.allowed || d.Engine != c.says || !strings.Contains(d.Reason, `neither true nor false; failurePolicy is `) {
			t.Errorf("%s for %s: %+v", c.failure, c.trigger, d)
		}
	}
}

func TestAnEngineThatIsSlowIsATimeout(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // so that the end of the connection is noticed
		<-r.Context().Done()
	}))
	defer server.Close()
	j, _ := court(t, nil, named("p", asking(v1alpha1.PolicyEngine{URL: server.URL, Timeout: &metav1.Duration{Duration: 20 * time.Millisecond}})))
	d := decide(t, j, question())
	if d.Allowed || d.Engine != policy.EngineTimeout || !strings.Contains(d.Reason, "no answer within 20ms") {
		t.Errorf("%+v", d)
	}
	q := question()
	q.Trigger = v1alpha1.TriggerRepair
	if d := decide(t, j, q); !d.Allowed || d.Engine != policy.EngineTimeout {
		t.Errorf("%+v", d)
	}
}

// A policy that came in while nobody refused it is not used, whatever the trigger.
func TestABrokenPolicyDenies(t *testing.T) {
	j, _ := court(t, nil, named("p", rule("r", `pod.nonsense`, v1alpha1.RuleAllow)))
	q := question()
	q.Trigger = v1alpha1.TriggerRTPressure
	if d := decide(t, j, q); d.Allowed || !strings.Contains(d.Reason, "MigrationPolicy p cannot be used: spec.rules[0].expression") {
		t.Errorf("%+v", d)
	}
}

func TestAChangedPolicyIsReadAgain(t *testing.T) {
	before, _ := engine(t, `{"allowed":true,"reason":"before"}`)
	after, _ := engine(t, `{"allowed":true,"reason":"after"}`)
	p := named("p", rule("r", `false`, v1alpha1.RuleDeny), asking(v1alpha1.PolicyEngine{URL: before}))
	j, c := court(t, nil, p)
	if d := decide(t, j, question()); d.Reason != "the policy engine says: before" {
		t.Errorf("%+v", d)
	}
	p.Generation, p.Spec.PolicyEngine.URL = 2, after
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if d := decide(t, j, question()); d.Reason != "the policy engine says: after" {
		t.Errorf("%+v", d)
	}
	p.Generation, p.Spec.Rules[0].Expression = 3, `true`
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if d := decide(t, j, question()); d.Allowed || d.Rule != "r" {
		t.Errorf("%+v", d)
	}
	if err := c.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if d := decide(t, j, question()); !d.Allowed || d.Policy != "" {
		t.Errorf("%+v", d)
	}
}

func TestTheTokenIsReadFromItsSecret(t *testing.T) {
	const token = "a-bearer-of-secrets"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "mainspring-system", Name: "engine",
		Annotations: map[string]string{v1alpha1.TokenHostsAnnotation: "other.example.com, engine.example.com:8443"},
	}, Data: map[string][]byte{"token": []byte(token + "\n"), "bad": []byte("a\nb")}}
	j, _ := court(t, nil, secret)
	if got, err := j.Token(t.Context(), "https://engine.example.com:8443/a", v1alpha1.SecretKey{Name: "engine", Key: "token"}); err != nil || got != token {
		t.Errorf("%q, %v", got, err)
	}
	for _, key := range []v1alpha1.SecretKey{{Name: "engine", Key: "none"}, {Name: "engine", Key: "bad"}, {Name: "none", Key: "token"}} {
		if got, err := j.Token(t.Context(), "https://other.example.com", key); err == nil || got != "" || strings.Contains(err.Error(), "a\nb") {
			t.Errorf("%v: %q, %v", key, got, err)
		}
	}
	for _, engine := range []string{"https://evil.example.com", "https://engine.example.com", "https://engine.example.com:443", "https://engine.example.com:8443.evil.example.com", "https://", ""} {
		if got, err := j.Token(t.Context(), engine, v1alpha1.SecretKey{Name: "engine", Key: "token"}); err == nil || got != "" || !strings.Contains(err.Error(), v1alpha1.TokenHostsAnnotation) {
			t.Errorf("%s: %q, %v", engine, got, err)
		}
	}
}

// The cluster that cannot be read is not an answer.
func TestACacheThatFailsIsAnError(t *testing.T) {
	_, c := court(t, nil, named("p"))
	failing := interceptor.NewClient(c, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("not synced")
	}})
	j := policy.NewJudge(policy.Options{Client: failing, Secrets: c, Clock: clocktesting.NewFakePassiveClock(noon)})
	if d, err := j.Decide(t.Context(), question()); err == nil || d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	q := question()
	q.Pod.Namespace = "gone"
	j = policy.NewJudge(policy.Options{Client: c, Secrets: c, Clock: clocktesting.NewFakePassiveClock(noon)})
	if d, err := j.Decide(t.Context(), q); err == nil || d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestEveryDecisionIsCounted(t *testing.T) {
	url, _ := engine(t, `{"allowed":true}`)
	counted := func(engine, outcome string) float64 {
		m := &dto.Metric{}
		if err := metrics.PolicyDecisions.WithLabelValues(engine, outcome).Write(m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	j, _ := court(t, nil, named("p", asking(v1alpha1.PolicyEngine{URL: url})))
	yes, cached, alone := counted(metrics.EnginePolicy, metrics.PolicyAllow), counted(metrics.EnginePolicy, metrics.PolicyCached), counted(metrics.EngineNone, metrics.PolicyAllow)
	decide(t, j, question())
	decide(t, j, question())
	without, _ := court(t, nil)
	decide(t, without, question())
	if counted(metrics.EnginePolicy, metrics.PolicyAllow) != yes+1 || counted(metrics.EnginePolicy, metrics.PolicyCached) != cached+1 || counted(metrics.EngineNone, metrics.PolicyAllow) != alone+1 {
		t.Error("a decision is not counted, or twice")
	}
}

// What an engine is told: the fields of the SDI Migration Service, and what it may know besides.
func TestWhatAnEngineIsTold(t *testing.T) {
	var body bytes.Buffer
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(&body, r.Body)                //nolint:errcheck // looked at below
		io.WriteString(w, `{"allowed":true}`) //nolint:errcheck // the caller sees what comes
	}))
	defer server.Close()
	j, _ := court(t, &v1alpha1.PolicyEngine{URL: server.URL})
	q := question()
	q.Pod.Labels = nil
	decide(t, j, q)
	got := map[string]any{}
	if err := json.Unmarshal(body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"pod":         map[string]any{"name": "web-1", "namespace": "default", "node_name": "node-1", "labels": map[string]any{}, "male": map[string]any{"male.keti.dev/latency": "0.3"}},
		"source_node": "node-1", "target_node": "node-2", "trigger": "Cost", "criticality": "High",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
