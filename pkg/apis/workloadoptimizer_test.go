package apis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

func optimizers(t *testing.T) dynamic.NamespaceableResourceInterface {
	t.Helper()
	return resources(t, kinds["WorkloadOptimizer"])
}

func namespaces(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	return resources(t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
}

func resources(t *testing.T, of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(of)
}

// The manifests of KCloud's documentation are applied as they stand.
func TestWorkloadOptimizersOfTheSeedAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/kcloud/seed-*.yaml")
	if err != nil || len(files) != 3 {
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
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = "default"
		}
		if _, err := namespaces(t).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
		}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		created, err := optimizers(t).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		asked, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "costConstraints", "maxCostPerHour")
		if cost, _, _ := unstructured.NestedFieldNoCopy(created.Object, "spec", "costConstraints", "maxCostPerHour"); fmt.Sprint(cost) != fmt.Sprint(asked) {
			t.Errorf("%s: maxCostPerHour is %v, want %v", file, cost, asked)
		}
	}
}

func TestWorkloadOptimizer(t *testing.T) {
	const plain = "{workloadType: serving, resources: {cpu: 500m, memory: 1Gi}}"
	for name, c := range map[string]struct{ change, want string }{
		"plain":                       {"{}", ""},
		"inference without a device":  {"{workloadType: inference}", ""},
		"cost without a budget":       {"{costConstraints: {maxCostPerHour: 0.5}}", ""},
		"whole numbers":               {"{costConstraints: {maxCostPerHour: 5, budgetLimit: 120}, powerConstraints: {maxPowerUsage: 100}}", ""},
		"no replica":                  {"{autoScaling: {minReplicas: 0, maxReplicas: 1}}", ""},
		"training without a device":   {"{workloadType: training}", "training needs resources.gpu or resources.npu"},
		"another type":                {"{workloadType: mining}", "spec.workloadType: Unsupported value"},
		"no cost":                     {"{costConstraints: {maxCostPerHour: 0}}", "spec.costConstraints.maxCostPerHour"},
		"a negative cost":             {"{costConstraints: {maxCostPerHour: -1}}", "spec.costConstraints.maxCostPerHour"},
		"a cost beyond all":           {"{costConstraints: {maxCostPerHour: 1e300}}", "spec.costConstraints.maxCostPerHour"},
		"a budget below a day":        {"{costConstraints: {maxCostPerHour: 10, budgetLimit: 239}}", "budgetLimit must be at least 24 hours at maxCostPerHour"},
		"no power":                    {"{powerConstraints: {maxPowerUsage: 0}}", "spec.powerConstraints.maxPowerUsage"},
		"priority":                    {"{priority: 101}", "spec.priority"},
		"GPUs":                        {"{resources: {cpu: 1, memory: 1Gi, gpu: 17}}", "spec.resources.gpu"},
		"no cores":                    {"{resources: {cpu: 0, memory: 1Gi}}", "cpu must be above 0"},
		"negative memory":             {"{resources: {cpu: 1, memory: -1Gi}}", "memory must be above 0"},
		"fewest above most":           {"{autoScaling: {minReplicas: 3, maxReplicas: 2}}", "minReplicas must be at most maxReplicas"},
		"replicas":                    {"{autoScaling: {minReplicas: 1, maxReplicas: 1001}}", "spec.autoScaling.maxReplicas"},
		"a metric":                    {"{autoScaling: {minReplicas: 1, maxReplicas: 2, metrics: [{type: luck, threshold: 1}]}}", "Unsupported value"},
		"a metric twice":              {"{autoScaling: {minReplicas: 1, maxReplicas: 2, metrics: [{type: cpu, threshold: 1}, {type: cpu, threshold: 2}]}}", "Duplicate value"},
		"a threshold":                 {"{autoScaling: {minReplicas: 1, maxReplicas: 2, metrics: [{type: cpu, threshold: 0}]}}", "threshold"},
		"a preferred label's name":    {"{placementPolicy: {affinity: [{key: a b, value: c}]}}", "spec.placementPolicy.affinity[0].key"},
		"labels":                      {"{placementPolicy: {nodeSelector: {example.com/a.b: ''}, affinity: [{key: gpu.nvidia.com/class, value: compute}]}}", ""},
		"a weight":                    {"{placementPolicy: {affinity: [{key: a, value: b, weight: 101}]}}", "spec.placementPolicy.affinity[0].weight"},
		"a field that does not exist": {"{costConstraint: {}}", "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, change := map[string]any{}, map[string]any{}
			if err := yaml.Unmarshal([]byte(plain), &spec); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(c.change), &change); err != nil {
				t.Fatal(err)
			}
			for key, value := range change {
				spec[key] = value
			}
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "kcloud.io/v1alpha1", "kind": "WorkloadOptimizer", "metadata": map[string]any{"generateName": "test-"}, "spec": spec,
			}}
			_, err := optimizers(t).Namespace("default").Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
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
