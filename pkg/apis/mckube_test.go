package apis_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const mckubeHeader = "apiVersion: mcoperator.sdv.com/v1\nkind: McKube\nmetadata: {generateName: test-}\nspec: "

// rt completes a spec with a pod and settings.
func rt(settings string) string {
	return fmt.Sprintf("{podname: p, rtSettings: {period: 10000, runtime_low: 1000, runtime_hi: 2000%s}}", settings)
}

// Each refused McKube is beside one that differs from it in the rule at hand only.
func TestMcKubeRules(t *testing.T) {
	for _, tc := range []struct{ good, bad, want string }{
		{"{podname: p}", "{}", "spec.podname: Invalid value: podname and selector are missing; exactly one of podname and selector must be given"},
		{"{selector: {matchLabels: {a: b}}}", "{podname: p, selector: {matchLabels: {a: b}}}", `spec.podname: Invalid value: podname is "p" and selector is given too; exactly one of podname and selector must be given`},
		{"{podname: p}", `{podname: ""}`, "spec.podname: Invalid value: podname and selector are missing; exactly one of podname and selector must be given"},
		{"{selector: {matchExpressions: [{key: a, operator: Exists}]}}", "{selector: {}}", "spec.selector: Invalid value: selector is empty; a selector must hold at least one label or expression"},
		{"{podname: p, pressuredDeadlinesTotal: 5, pressuredDeadlinesPeriod: 60}", "{podname: p, pressuredDeadlinesTotal: 5}", "spec.pressuredDeadlinesPeriod: Required value: pressuredDeadlinesPeriod is missing though pressuredDeadlinesTotal is 5; they must be given together"},
		{"{podname: p, pressuredDeadlinesTotal: 1, pressuredDeadlinesPeriod: 1}", "{podname: p, pressuredDeadlinesTotal: -1, pressuredDeadlinesPeriod: 1}", "spec.pressuredDeadlinesTotal: Invalid value: -1: spec.pressuredDeadlinesTotal in body should be greater than or equal to 0"},
		{"{podname: p, criticality: mIDDLE}", "{podname: p, criticality: Urgent}", `spec.criticality: Invalid value: "Urgent": must be High, Middle or Low`},
		{"{podname: p, criticality: HIGH}", "{podname: p, criticality: Highest}", `spec.criticality: Invalid value: "Highest": must be High, Middle or Low`},
		{"{podname: p, container: app}", "{podname: p, container: " + strings.Repeat("a", 64) + "}", "spec.container: Too long: may not be more than 63 bytes"},
		{"{podname: p, migration: {policy: Never}}", "{podname: p, migration: {policy: Always}}", `spec.migration.policy: Unsupported value: "Always": supported values: "Never", "Restart", "Checkpoint"`},

		{rt(""), "{podname: p, rtSettings: {period: 10000, runtime_low: 2001, runtime_hi: 2000}}", "spec.rtSettings.runtime_low: Invalid value: runtime_low is 2001; runtime_low must be at most runtime_hi, 2000"},
		{"{podname: p, rtSettings: {period: 10000, runtime_low: 1, runtime_hi: 9500}}", "{podname: p, rtSettings: {period: 10000, runtime_low: 1, runtime_hi: 9501}}", "spec.rtSettings.runtime_hi: Invalid value: runtime_hi is 9501; runtime_hi must be at most 95 % of period, 9500"},
		{"{podname: p, rtSettings: {period: 100, runtime_low: 1, runtime_hi: 1}}", "{podname: p, rtSettings: {period: 99, runtime_low: 1, runtime_hi: 1}}", "spec.rtSettings.period: Invalid value: 99: spec.rtSettings.period in body should be greater than or equal to 100"},
		{"{podname: p, rtSettings: {period: 10000000, runtime_low: 1, runtime_hi: 1}}", "{podname: p, rtSettings: {period: 10000001, runtime_low: 1, runtime_hi: 1}}", "spec.rtSettings.period: Invalid value: 10000001: spec.rtSettings.period in body should be less than or equal to 10000000"},
		{rt(""), "{podname: p, rtSettings: {period: 10000, runtime_low: 0, runtime_hi: 2000}}", "spec.rtSettings.runtime_low: Invalid value: 0: spec.rtSettings.runtime_low in body should be greater than or equal to 1"},
		{rt(""), "{podname: p, rtSettings: {period: 10000, runtime_low: 1000}}", "spec.rtSettings.runtime_hi: Required value"},
		{rt(", deadline: 2000"), rt(", deadline: 1999"), "spec.rtSettings.deadline: Invalid value: deadline is 1999; deadline must be from runtime_hi to period, 2000 to 10000"},
		{rt(", deadline: 10000"), rt(", deadline: 10001"), "spec.rtSettings.deadline: Invalid value: deadline is 10001; deadline must be from runtime_hi to period, 2000 to 10000"},
		{rt(", levels: [{name: a, runtime: 1001}]"), rt(", levels: [{name: a, runtime: 1000}]"), "spec.rtSettings.levels: Invalid value: level a is 1000; levels must lie between runtime_low and runtime_hi, 1000 and 2000"},
		{rt(", levels: [{name: a, runtime: 1999}]"), rt(", levels: [{name: a, runtime: 2000}]"), "spec.rtSettings.levels: Invalid value: level a is 2000; levels must lie between runtime_low and runtime_hi, 1000 and 2000"},
		{rt(", levels: [{name: lower, runtime: 1500}]"), rt(", levels: [{name: low, runtime: 1500}]"), `spec.rtSettings.levels[0].name: Invalid value: "low": the level names low and hi are those of runtime_low and runtime_hi`},
		{rt(", levels: [{name: high, runtime: 1500}]"), rt(", levels: [{name: hi, runtime: 1500}]"), `spec.rtSettings.levels[0].name: Invalid value: "hi": the level names low and hi are those of runtime_low and runtime_hi`},
		{rt(", levels: [{name: a, runtime: 1500}, {name: b, runtime: 1600}]"), rt(", levels: [{name: a, runtime: 1500}, {name: a, runtime: 1600}]"), "Duplicate value"},
		{rt(", levels: [{name: a-1, runtime: 1500}]"), rt(", levels: [{name: A, runtime: 1500}]"), `spec.rtSettings.levels[0].name: Invalid value: "A": the name of a level must be of lower-case letters, digits and inner dashes`},
		{rt(`, core: "2-3"`), rt(`, core: "2-"`), `spec.rtSettings.core: Invalid value: "2-": core must be a cpuset list`},
		{rt(`, core: "0,2"`), rt(`, core: "0;2"`), `spec.rtSettings.core: Invalid value: "0;2": core must be a cpuset list`},
		{rt(`, core: "0-3,9999"`), rt(`, core: "10000"`), `spec.rtSettings.core: Invalid value: "10000": core must be a cpuset list`},
		{rt(`, core: "7-7"`), rt(`, core: "7-3"`), `spec.rtSettings.core: Invalid value: "7-3": core holds a range that runs backwards; write it as lower-higher`},
		{rt(`, core: "1"`), rt(`, core: ""`), `spec.rtSettings.core: Invalid value: "": core must be a cpuset list`},
		{rt(", tasks: [{period: 10, wcet: 10}]"), rt(", tasks: [{period: 10, wcet: 11}]"), "spec.rtSettings.tasks[0].wcet: Invalid value: wcet is 11; wcet must be at most its period, 10"},
		{rt(", tasks: [{period: 10, wcet: 5, deadline: 5}]"), rt(", tasks: [{period: 10, wcet: 5, deadline: 4}]"), "spec.rtSettings.tasks[0].deadline: Invalid value: deadline is 4; deadline must be from wcet to period, 5 to 10"},
		{rt(", tasks: [{period: 10, wcet: 5, deadline: 10}]"), rt(", tasks: [{period: 10, wcet: 5, deadline: 11}]"), "spec.rtSettings.tasks[0].deadline: Invalid value: deadline is 11; deadline must be from wcet to period, 5 to 10"},

		{"{podname: p, escalation: {overruns: 2, periods: 10}}", "{podname: p, escalation: {overruns: 2}}", "spec.escalation.periods: Required value: periods is missing though overruns is 2; they must be given together"},
		{"{podname: p, escalation: {overruns: 10, periods: 10}}", "{podname: p, escalation: {overruns: 11, periods: 10}}", "spec.escalation.overruns: Invalid value: overruns is 11; overruns must be at most periods, 10"},
		{"{podname: p, escalation: {mode: Reserved}}", "{podname: p, escalation: {mode: Rigid}}", `supported values: "Elastic", "Reserved"`},
		{"{podname: p, escalation: {admission: Limited}}", "{podname: p, escalation: {admission: None}}", `supported values: "Sound", "Limited"`},
		{"{podname: p, escalation: {recoveryDelay: 24h}}", "{podname: p, escalation: {recoveryDelay: 24h1ms}}", `spec.escalation.recoveryDelay: Invalid value: "24h1ms": recoveryDelay must be a duration of at most 24h`},
		{"{podname: p, escalation: {recoveryDelay: 1m30s}}", "{podname: p, escalation: {recoveryDelay: soon}}", `spec.escalation.recoveryDelay: Invalid value: "soon": recoveryDelay must be a duration of at most 24h, for example 5s or 1m30s`},
		{"{podname: p, escalation: {dwell: 1.5s}}", "{podname: p, escalation: {dwell: 25h}}", `spec.escalation.dwell: Invalid value: "25h": dwell must be a duration of at most 24h`},
		{"{podname: p, escalation: {dwell: 0s}}", "{podname: p, escalation: {dwell: -1s}}", `spec.escalation.dwell: Invalid value: "-1s": dwell must be a duration of at most 24h`},
	} {
		if _, err := create(t, mckubes, mckubeHeader+tc.good); err != nil {
			t.Errorf("%s: %v", tc.good, err)
		}
		if _, err := create(t, mckubes, mckubeHeader+tc.bad); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that says %q", tc.bad, err, tc.want)
		}
	}
}

// Values that no rule can compute with are refused by their bounds and formats alone.
func TestMcKubeRulesDoNotFailToEvaluate(t *testing.T) {
	for _, tc := range []struct {
		value any
		path  string
	}{
		{int64(math.MaxInt64), "rtSettings.period"}, {int64(math.MinInt64), "rtSettings.period"},
		{int64(math.MaxInt64), "rtSettings.runtime_hi"}, {int64(math.MinInt64), "rtSettings.runtime_hi"},
		{int64(math.MaxInt64), "rtSettings.runtime_low"}, {int64(math.MaxInt64), "rtSettings.deadline"},
		{"5", "escalation.recoveryDelay"}, {"99999999999999999h", "escalation.recoveryDelay"},
		{"99999h99999h99999h99999h99999h", "escalation.dwell"}, {"", "escalation.dwell"}, {"1d", "escalation.dwell"},
		{"9999999999999999999-1", "rtSettings.core"},
	} {
		object := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(mckubeHeader+"{podname: p, escalation: {}, rtSettings: {}}"), &object); err != nil {
			t.Fatal(err)
		}
		settings := map[string]any{"period": int64(10000), "runtime_low": int64(1000), "runtime_hi": int64(2000)}
		if err := unstructured.SetNestedMap(object, settings, "spec", "rtSettings"); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedField(object, tc.value, strings.Split("spec."+tc.path, ".")...); err != nil {
			t.Fatal(err)
		}
		_, err := mckubes.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "spec."+tc.path+": Invalid value: ") || strings.Contains(err.Error(), "evaluating rule") {
			t.Errorf("%s %v: error %v", tc.path, tc.value, err)
		}
	}
}

// What chooses the container stays; what it gets may change.
func TestMcKubeChoiceStays(t *testing.T) {
	named := "{podname: p, container: c, rtSettings: {period: 10000, runtime_low: 1000, runtime_hi: 2000}}"
	selecting := "{selector: {matchLabels: {a: b}}, rtSettings: {period: 10000, runtime_low: 1000, runtime_hi: 2000}}"
	for _, tc := range []struct{ spec, patch, want string }{
		{named, `{"spec":{"podname":"q"}}`, `spec.podname: Invalid value: podname is "q" and was "p"; podname cannot be changed`},
		{named, `{"spec":{"podname":null,"selector":{"matchLabels":{"a":"b"}}}}`, `spec.podname: Invalid value: podname is "" and was "p"; podname cannot be changed`},
		{named, `{"spec":{"container":"d"}}`, `spec.container: Invalid value: container is "d" and was "c"; container cannot be changed`},
		{named, `{"spec":{"container":null}}`, `spec.container: Invalid value: container is "" and was "c"; container cannot be changed`},
		{selecting, `{"spec":{"selector":{"matchLabels":{"a":"c"}}}}`, "spec.selector: Invalid value: selector cannot be changed"},
		{selecting, `{"spec":{"container":"c"}}`, `spec.container: Invalid value: container is "c" and was ""; container cannot be changed`},
		{named, `{"spec":{"criticality":"High","rtSettings":{"runtime_hi":3000},"node":"n"}}`, ""},
		{selecting, `{"spec":{"migration":{"policy":"Never"}}}`, ""},
	} {
		object, err := create(t, mckubes, mckubeHeader+tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		_, err = mckubes.Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.patch, err, tc.want)
		}
	}
}

func TestMcKubeDefaults(t *testing.T) {
	object, err := create(t, mckubes, mckubeHeader+"{podname: p, escalation: {}, migration: {}}")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"criticality": "Low", "escalation.mode": "Elastic", "escalation.admission": "Sound", "migration.policy": "Restart",
	} {
		if got, _, err := unstructured.NestedString(object.Object, strings.Split("spec."+path, ".")...); got != want || err != nil {
			t.Errorf("spec.%s is %q by default, want %q (%v)", path, got, want, err)
		}
	}
	bare, err := create(t, mckubes, mckubeHeader+"{podname: p}")
	if err != nil {
		t.Fatal(err)
	}
	if spec := bare.Object["spec"].(map[string]any); len(spec) != 2 {
		t.Errorf("a McKube of a podname has %v", spec)
	}
}

const rtnodeHeader = "apiVersion: mckube.io/v1alpha1\nkind: RTNode\nmetadata: {generateName: test-}\nspec: "

// server completes an RTNode's server.
func server(more string) string {
	return "{servers: [{podUID: u, namespace: a, pod: p, container: c, criticality: Low, periodUs: 10, deadlineUs: 10, budgetLowUs: 1, budgetHighUs: 2, cores: [1]" + more + "}]}"
}

func TestRTNodeRules(t *testing.T) {
	for _, tc := range []struct{ good, bad, want string }{
		{server(""), strings.Replace(server(""), "Low", "low", 1), `supported values: "Low", "Middle", "High"`},
		{server(""), strings.Replace(server(""), "periodUs: 10", "periodUs: 0", 1), "periodUs"},
		{server(""), strings.Replace(server(""), "deadlineUs: 10", "deadlineUs: 0", 1), "deadlineUs"},
		{server(""), strings.Replace(server(""), "budgetLowUs: 1", "budgetLowUs: 0", 1), "budgetLowUs"},
		{server(""), strings.Replace(server(""), "budgetHighUs: 2", "budgetHighUs: 0", 1), "budgetHighUs"},
		{server(""), strings.Replace(server(""), "cores: [1]", "cores: [1, 1]", 1), "Duplicate value"},
		{server(""), strings.Replace(server(""), "}]}", "}, {podUID: u, namespace: a, pod: p, container: c, criticality: Low, periodUs: 10, deadlineUs: 10, budgetLowUs: 1, budgetHighUs: 2, cores: [1]}]}", 1), "Duplicate value"},
		{"{plan: [{core: 1, test: T1, thresholdPpm: 900000}]}", "{plan: [{core: 1, test: T1, thresholdPpm: 1}, {core: 1, test: T1, thresholdPpm: 1}]}", "Duplicate value"},
	} {
		if _, err := create(t, rtnodes, rtnodeHeader+tc.good); err != nil {
			t.Errorf("%s: %v", tc.good, err)
		}
		if _, err := create(t, rtnodes, rtnodeHeader+tc.bad); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that says %q", tc.bad, err, tc.want)
		}
	}
}

func TestRTNodeDefaults(t *testing.T) {
	object, err := create(t, rtnodes, rtnodeHeader+server(""))
	if err != nil {
		t.Fatal(err)
	}
	servers, _, err := unstructured.NestedSlice(object.Object, "spec", "servers")
	if err != nil {
		t.Fatal(err)
	}
	if s := servers[0].(map[string]any); s["level"] != "low" || s["mode"] != "Elastic" {
		t.Errorf("server %v", s)
	}
}
