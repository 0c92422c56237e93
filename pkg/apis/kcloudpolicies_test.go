package apis_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestPolicyExamplesOfKCloudAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/kcloud/*policy.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(data, &object.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if _, err := resources(t, kinds[object.GetKind()]).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestCostAndPowerPolicies(t *testing.T) {
	for name, c := range map[string]struct{ kind, spec, want string }{
		"nothing bounded":          {"CostPolicy", "{}", ""},
		"whole numbers":            {"CostPolicy", "{budgetLimit: 1, monthlyBudget: 2, costPerHourLimit: 3}", ""},
		"no budget":                {"CostPolicy", "{budgetLimit: 0}", "spec.budgetLimit"},
		"a negative limit":         {"CostPolicy", "{costPerHourLimit: -1}", "spec.costPerHourLimit"},
		"a budget beyond all":      {"CostPolicy", "{monthlyBudget: 1e300}", "spec.monthlyBudget"},
		"spot":                     {"CostPolicy", "{spotInstancePolicy: {maxSpotPercentage: 101}}", "spec.spotInstancePolicy.maxSpotPercentage"},
		"an interruption":          {"CostPolicy", "{spotInstancePolicy: {interruptionHandling: ignore}}", "Unsupported value"},
		"a negative unit price":    {"CostPolicy", "{resourceCostPolicy: {gpuCostPerHour: -1}}", "spec.resourceCostPolicy.gpuCostPerHour"},
		"an alert":                 {"CostPolicy", "{alertThresholds: [{type: luck, value: 1}]}", "Unsupported value"},
		"an action":                {"CostPolicy", "{alertThresholds: [{type: anomaly, value: 1, action: cry}]}", "Unsupported value"},
		"an alert at nothing":      {"CostPolicy", "{alertThresholds: [{type: anomaly, value: 0}]}", "spec.alertThresholds[0].value"},
		"a field of another":       {"CostPolicy", "{maxPowerUsage: 1}", "unknown field"},
		"nothing drawn":            {"PowerPolicy", "{maxPowerUsage: 0}", "spec.maxPowerUsage"},
		"efficiency":               {"PowerPolicy", "{powerEfficiencyTarget: 101}", "spec.powerEfficiencyTarget"},
		"a night":                  {"PowerPolicy", "{powerSchedulingPolicy: {peakPowerAvoidance: true, peakPowerHours: ['22:00-06:00', '12:00-24:00']}}", ""},
		"an hour that is none":     {"PowerPolicy", "{powerSchedulingPolicy: {peakPowerHours: ['25:00-26:00']}}", "spec.powerSchedulingPolicy.peakPowerHours[0]"},
		"words for hours":          {"PowerPolicy", "{powerSchedulingPolicy: {peakPowerHours: ['noon']}}", "spec.powerSchedulingPolicy.peakPowerHours[0]"},
		"avoidance without hours":  {"PowerPolicy", "{powerSchedulingPolicy: {peakPowerAvoidance: true}}", "peakPowerAvoidance needs powerSchedulingPolicy.peakPowerHours"},
		"avoidance of empty hours": {"PowerPolicy", "{powerSchedulingPolicy: {peakPowerAvoidance: true, peakPowerHours: []}}", "peakPowerAvoidance needs powerSchedulingPolicy.peakPowerHours"},
		"green":                    {"PowerPolicy", "{greenEnergyPolicy: {enabled: true, minGreenEnergyPercentage: 30, carbonFootprintTarget: 5}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{}
			if err := yaml.Unmarshal([]byte(c.spec), &spec); err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "kcloud.io/v1alpha1", "kind": c.kind, "metadata": map[string]any{"generateName": "test-"}, "spec": spec,
			}}
			_, err := resources(t, kinds[c.kind]).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if c.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
			if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				t.Errorf("refused for another reason: %v", err)
			}
		})
	}
}
