package apis_test

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

type fields = map[string]any

// What a policy can say wrong of itself is refused by its definition, with the field.
func TestMigrationPoliciesAreValidated(t *testing.T) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	engine := func(more fields) fields {
		e := fields{"url": "https://engine.example.com/api"}
		maps.Copy(e, more)
		return fields{"policyEngine": e}
	}
	window := func(duration string) fields {
		return fields{"windows": []any{fields{"schedule": "0 1 * * *", "duration": duration}}}
	}
	rule := func(more fields) fields {
		r := fields{"name": "r", "expression": "true", "action": "Deny"}
		maps.Copy(r, more)
		return fields{"rules": []any{r}}
	}
	for _, c := range []struct {
		spec fields
		want string // empty: it is accepted
	}{
		{fields{}, ""},
		{rule(nil), ""},
		{rule(fields{"action": "Perhaps"}), "spec.rules[0].action"},
		{rule(fields{"expression": ""}), "spec.rules[0].expression"},
		{rule(fields{"expression": strings.Repeat("x", 4097)}), "spec.rules[0].expression"},
		{window("1m"), ""},
		{window("168h"), ""},
		{window("59s"), "duration must be from 1m to 168h"},
		{window("168h1s"), "duration must be from 1m to 168h"},
		{window("soon"), "spec.windows[0].duration"},
		{engine(nil), ""},
		{engine(fields{"url": "http://engine:8080"}), ""},
		{engine(fields{"url": "engine:8080"}), "spec.policyEngine.url"},
		{engine(fields{"url": "https://engine?x=y"}), "spec.policyEngine.url"},
		{engine(fields{"timeout": "30s"}), ""},
		{engine(fields{"timeout": "31s"}), "timeout must be from 10ms to 30s"},
		{engine(fields{"timeout": "9ms"}), "timeout must be from 10ms to 30s"},
		{engine(fields{"failurePolicy": "Rules"}), ""},
		{engine(fields{"failurePolicy": "Ignore"}), "spec.policyEngine.failurePolicy"},
		{engine(fields{"caBundle": "x", "tokenSecret": fields{"name": "a", "key": "b"}}), ""},
		{engine(fields{"url": "http://engine", "caBundle": "x"}), "caBundle is only for https"},
		{engine(fields{"url": "http://engine", "tokenSecret": fields{"name": "a", "key": "b"}}), "a token is not sent in the clear"},
		{fields{"interval": "1h"}, ""},
		{fields{"interval": "2h"}, "interval must be from 1s to 1h"},
		{fields{"resourcePressureThresholdPercent": int64(0)}, "spec.resourcePressureThresholdPercent"},
		{fields{"resourcePressureThresholdPercent": int64(100)}, ""},
		{fields{"limits": fields{"perNode": int64(1), "perWorkloadPerHour": int64(1000)}}, ""},
		{fields{"limits": fields{"perNode": int64(0)}}, "spec.limits.perNode"},
		{fields{"strategy": "Teleport"}, "spec.strategy"},
	} {
		o := &unstructured.Unstructured{Object: fields{
			"apiVersion": "mckube.io/v1alpha1", "kind": "MigrationPolicy", "metadata": fields{"name": "checked"}, "spec": c.spec,
		}}
		_, err := client.Resource(kinds["MigrationPolicy"]).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.spec, err, c.want)
		}
	}
}
