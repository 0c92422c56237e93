package apis_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const mckubeHeader = "apiVersion: mcoperator.sdv.com/v1\nkind: McKube\nmetadata: {generateName: test-}\nspec: "

// rt completes a spec with a pod and settings.
func rt(settings string) string {
	return fmt.Sprintf("{podname: p, rtSettings: {period: 10000, runtime_low: 1000, runtime_hi: 2000%s}}", settings)
}

// Each refused McKube is beside one that differs from it in the rule at hand only.
func TestMcKubeRules(t *testing.T) {
	for _, tc := range []struct{ good, bad, want string }{
		{"{podname: p}", "{}", "exactly one of podname and selector"},
		{"{selector: {matchLabels: {a: b}}}", "{podname: p, selector: {matchLabels: {a: b}}}", "exactly one of podname and selector"},
		{"{podname: p}", `{podname: ""}`, "exactly one of podname and selector"},
		{"{selector: {matchExpressions: [{key: a, operator: Exists}]}}", "{selector: {}}", "selector must hold at least one label or expression"},
		{"{podname: p, pressuredDeadlinesTotal: 5, pressuredDeadlinesPeriod: 60}", "{podname: p, pressuredDeadlinesTotal: 5}", "must be given together"},
		{"{podname: p, pressuredDeadlinesTotal: 1, pressuredDeadlinesPeriod: 1}", "{podname: p, pressuredDeadlinesTotal: 0, pressuredDeadlinesPeriod: 1}", "spec.pressuredDeadlinesTotal"},
		{"{podname: p, criticality: mIDDLE}", "{podname: p, criticality: Urgent}", "spec.criticality"},
		{"{podname: p, criticality: HIGH}", "{podname: p, criticality: Highest}", "spec.criticality"},
		{"{podname: p, container: app}", "{podname: p, container: " + strings.Repeat("a", 64) + "}", "spec.container"},
		{"{podname: p, migration: {policy: Never}}", "{podname: p, migration: {policy: Always}}", `supported values: "Never", "Restart", "Checkpoint"`},

		{rt(""), "{podname: p, rtSettings: {period: 10000, runtime_low: 2001, runtime_hi: 2000}}", "runtime_low must be at most runtime_hi"},
		{"{podname: p, rtSettings: {period: 10000, runtime_low: 1, runtime_hi: 9500}}", "{podname: p, rtSettings: {period: 10000, runtime_low: 1, runtime_hi: 9501}}", "runtime_hi must be at most 95 % of period"},
		{"{podname: p, rtSettings: {period: 100, runtime_low: 1, runtime_hi: 1}}", "{podname: p, rtSettings: {period: 99, runtime_low: 1, runtime_hi: 1}}", "spec.rtSettings.period"},
		{"{podname: p, rtSettings: {period: 10000000, runtime_low: 1, runtime_hi: 1}}", "{podname: p, rtSettings: {period: 10000001, runtime_low: 1, runtime_hi: 1}}", "spec.rtSettings.period"},
		{rt(""), "{podname: p, rtSettings: {period: 10000, runtime_low: 0, runtime_hi: 2000}}", "spec.rtSettings.runtime_low"},
		{rt(""), "{podname: p, rtSettings: {period: 10000, runtime_low: 1000}}", "spec.rtSettings.runtime_hi"},
		{rt(", deadline: 2000"), rt(", deadline: 1999"), "deadline must be from runtime_hi to period"},
		{rt(", deadline: 10000"), rt(", deadline: 10001"), "deadline must be from runtime_hi to period"},
		{rt(", levels: [{name: a, runtime: 1001}]"), rt(", levels: [{name: a, runtime: 1000}]"), "levels must lie between"},
		{rt(", levels: [{name: a, runtime: 1999}]"), rt(", levels: [{name: a, runtime: 2000}]"), "levels must lie between"},
		{rt(", levels: [{name: lower, runtime: 1500}]"), rt(", levels: [{name: low, runtime: 1500}]"), "those of runtime_low and runtime_hi"},
		{rt(", levels: [{name: high, runtime: 1500}]"), rt(", levels: [{name: hi, runtime: 1500}]"), "those of runtime_low and runtime_hi"},
		{rt(", levels: [{name: a, runtime: 1500}, {name: b, runtime: 1600}]"), rt(", levels: [{name: a, runtime: 1500}, {name: a, runtime: 1600}]"), "Duplicate value"},
		{rt(", levels: [{name: a-1, runtime: 1500}]"), rt(", levels: [{name: A, runtime: 1500}]"), "spec.rtSettings.levels[0].name"},
		{rt(`, core: "2-3"`), rt(`, core: "2-"`), "core must be a cpuset list"},
		{rt(`, core: "0,2"`), rt(`, core: "0;2"`), "core must be a cpuset list"},
		{rt(`, core: "0-3,9999"`), rt(`, core: "10000"`), "core must be a cpuset list"},
		{rt(`, core: "7-7"`), rt(`, core: "7-3"`), "range that runs backwards"},
		{rt(`, core: "1"`), rt(`, core: ""`), "spec.rtSettings.core"},
		{rt(", tasks: [{period: 10, wcet: 10}]"), rt(", tasks: [{period: 10, wcet: 11}]"), "wcet must be at most its period"},
		{rt(", tasks: [{period: 10, wcet: 5, deadline: 5}]"), rt(", tasks: [{period: 10, wcet: 5, deadline: 4}]"), "deadline must be from wcet to period"},
		{rt(", tasks: [{period: 10, wcet: 5, deadline: 10}]"), rt(", tasks: [{period: 10, wcet: 5, deadline: 11}]"), "deadline must be from wcet to period"},

		{"{podname: p, escalation: {overruns: 2, periods: 10}}", "{podname: p, escalation: {overruns: 2}}", "must be given together"},
		{"{podname: p, escalation: {overruns: 10, periods: 10}}", "{podname: p, escalation: {overruns: 11, periods: 10}}", "overruns must be at most periods"},
		{"{podname: p, escalation: {mode: Reserved}}", "{podname: p, escalation: {mode: Rigid}}", `supported values: "Elastic", "Reserved"`},
		{"{podname: p, escalation: {admission: Limited}}", "{podname: p, escalation: {admission: None}}", `supported values: "Sound", "Limited"`},
		{"{podname: p, escalation: {recoveryDelay: 24h}}", "{podname: p, escalation: {recoveryDelay: 24h1ms}}", "recoveryDelay must be at most 24h"},
		{"{podname: p, escalation: {recoveryDelay: 1m30s}}", "{podname: p, escalation: {recoveryDelay: soon}}", "spec.escalation.recoveryDelay"},
		{"{podname: p, escalation: {dwell: 1.5s}}", "{podname: p, escalation: {dwell: 25h}}", "dwell must be at most 24h"},
		{"{podname: p, escalation: {dwell: 0s}}", "{podname: p, escalation: {dwell: -1s}}", "spec.escalation.dwell"},
	} {
		if _, err := create(t, mckubes, mckubeHeader+tc.good); err != nil {
			t.Errorf("%s: %v", tc.good, err)
		}
		if _, err := create(t, mckubes, mckubeHeader+tc.bad); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that says %q", tc.bad, err, tc.want)
		}
	}
}

// What chooses the container stays; what it gets may change.
func TestMcKubeChoiceStays(t *testing.T) {
	named := "{podname: p, container: c, rtSettings: {period: 10000, runtime_low: 1000, runtime_hi: 2000}}"
	selecting := "{selector: {matchLabels: {a: b}}, rtSettings: {period: 10000, runtime_low: 1000, runtime_hi: 2000}}"
	for _, tc := range []struct{ spec, patch, want string }{
		{named, `{"spec":{"podname":"q"}}`, "podname cannot be changed"},
		{named, `{"spec":{"podname":null,"selector":{"matchLabels":{"a":"b"}}}}`, "podname cannot be changed"},
		{named, `{"spec":{"container":"d"}}`, "container cannot be changed"},
		{named, `{"spec":{"container":null}}`, "container cannot be changed"},
		{selecting, `{"spec":{"selector":{"matchLabels":{"a":"c"}}}}`, "selector cannot be changed"},
		{selecting, `{"spec":{"container":"c"}}`, "container cannot be changed"},
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
