package apis_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// seeds are SHA-256 sums of the manifests in MC-Kube's and KCloud's own documentation. They must stay applicable as
// they were written, down to their comments.
var seeds = map[string]string{
	"kcloud/seed-bert-training.yaml":         "4c97d87ee3b4a03c342826414add471a698a6570723db04d3ed8a1db1b023fe9",
	"kcloud/seed-llm-serving.yaml":           "3f0e53e99f97103f9bab882daec276ed9eb6f62345a6cc36c9a66cc488c2520c",
	"kcloud/seed-ml-training-optimizer.yaml": "daedb0711ffb875d066552ffef285a9216c6defe5060df5d6f4aff50900ef3a3",
	"mckube/seed-example-config.yaml":        "34bc3e814f738226ecc16eb040501d6fb2a2125eee745be40d0946dff7cc786f",
	"mckube/seed-my-rt-app-config.yaml":      "ff60602524e1c28ac15138f909e1859fce2c07c4d49c0084509b44915685eebe",
	"mckube/seed-my-rt-app.yaml":             "c56d57ce77cc97eaf6e740ef317eb3c3f20cd33a0edba5856963e7eb2e49278a",
}

func TestSeedsAreUnchanged(t *testing.T) {
	for file, want := range seeds {
		data, err := os.ReadFile(filepath.Join("../../examples", file))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != want {
			t.Errorf("%s has been changed", file)
		}
	}
}

// kinds in the examples.
var kinds = map[string]schema.GroupVersionResource{
	"McKube":            {Group: "mcoperator.sdv.com", Version: "v1", Resource: "mckubes"},
	"Pod":               {Version: "v1", Resource: "pods"},
	"Deployment":        {Group: "apps", Version: "v1", Resource: "deployments"},
	"MigrationPolicy":   {Group: "mckube.io", Version: "v1alpha1", Resource: "migrationpolicies"},
	"WorkloadOptimizer": {Group: "kcloud.io", Version: "v1alpha1", Resource: "workloadoptimizers"},
	"CostPolicy":        {Group: "kcloud.io", Version: "v1alpha1", Resource: "costpolicies"},
	"PowerPolicy":       {Group: "kcloud.io", Version: "v1alpha1", Resource: "powerpolicies"},
	"PodMigration":      {Group: "mckube.io", Version: "v1alpha1", Resource: "podmigrations"},
}

// They also pass the webhook, see the package webhooks.
func TestMigrationExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/migration/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
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
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		var into dynamic.ResourceInterface = client.Resource(kinds[object.GetKind()])
		if object.GetNamespace() != "" {
			into = client.Resource(kinds[object.GetKind()]).Namespace(object.GetNamespace())
		}
		if _, err := into.Create(t.Context(), object, options); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestMcKubeExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/mckube/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// Pods need it, and there is no controller here to make it.
	account := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"}}}
	if _, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	governing := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(data, []byte("\n---\n")) {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
			if _, err := client.Resource(kinds[object.GetKind()]).Namespace(object.GetNamespace()).Create(t.Context(), object, options); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if object.GetKind() == "McKube" {
				governing++
			}
		}
	}
	if governing < 8 {
		t.Errorf("%d McKubes among the examples", governing)
	}
}
