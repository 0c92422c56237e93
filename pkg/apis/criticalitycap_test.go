package apis_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// A tenant cannot give itself a criticality that its namespace was not given.
func TestCriticalityIsCappedByTheExample(t *testing.T) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const group = "admissionregistration.k8s.io"
	resources := map[string]schema.GroupVersionResource{
		"ValidatingAdmissionPolicy":        {Group: group, Version: "v1", Resource: "validatingadmissionpolicies"},
		"ValidatingAdmissionPolicyBinding": {Group: group, Version: "v1", Resource: "validatingadmissionpolicybindings"},
	}
	data, err := os.ReadFile("../../examples/security/criticality-cap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			t.Fatal(err)
		}
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" { // it goes a moment after it is deleted, and is not to meet other tests
			selector := map[string]any{"matchExpressions": []any{map[string]any{"key": "kubernetes.io/metadata.name", "operator": "In", "values": []any{"capped-none", "capped-middle", "capped-high", "capped-odd"}}}}
			object.Object["spec"].(map[string]any)["matchResources"] = map[string]any{"namespaceSelector": selector}
		}
		into := client.Resource(resources[object.GetKind()])
		if _, err := into.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := into.Delete(context.WithoutCancel(t.Context()), object.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	for name, most := range map[string]string{"capped-none": "", "capped-middle": "Middle", "capped-high": "high", "capped-odd": "Highest"} {
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
		if most != "" {
			namespace.SetLabels(map[string]string{"mckube.io/max-criticality": most})
		}
		if _, err := namespaces.Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	all := client.Resource(mcv1.SchemeGroupVersion.WithResource("mckubes"))
	write := func(namespace, name, criticality string) error {
		m := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "mcoperator.sdv.com/v1", "kind": "McKube", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"podname": name, "rtSettings": map[string]any{"period": int64(100_000), "runtime_low": int64(10_000), "runtime_hi": int64(20_000)}},
		}}
		if criticality != "" {
			m.Object["spec"].(map[string]any)["criticality"] = criticality
		}
		_, err := all.Namespace(namespace).Create(t.Context(), m, metav1.CreateOptions{})
		return err
	}
	// The API server puts a policy in force a moment after it has it.
	tried := 0
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		tried++
		return apierrors.IsForbidden(write("capped-none", fmt.Sprintf("probe-%d", tried), "High")), nil
	}); err != nil {
		t.Fatalf("the policy is not in force after a minute: %v", err)
	}
	for _, c := range []struct {
		namespace, criticality string
		allowed                bool
	}{
		{"capped-none", "", true}, {"capped-none", "low", true}, {"capped-none", "Middle", false}, {"capped-none", "HIGH", false},
		{"capped-middle", "Low", true}, {"capped-middle", "Middle", true}, {"capped-middle", "High", false},
		{"capped-high", "High", true}, {"capped-odd", "Low", false}, {"capped-odd", "High", false},
	} {
		err := write(c.namespace, "m-"+cmp.Or(strings.ToLower(c.criticality), "default"), c.criticality)
		if (err == nil) != c.allowed || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "mckube.io/max-criticality")) {
			t.Errorf("criticality %q in %s: %v, allowed: %t", c.criticality, c.namespace, err, c.allowed)
		}
	}
	into := all.Namespace("capped-middle")
	for patch, allowed := range map[string]bool{
		`{"metadata":{"labels":{"a":"b"}}}`: true, `{"spec":{"criticality":"High"}}`: false, `{"spec":{"criticality":"Low"}}`: true,
	} {
		if _, err := into.Patch(t.Context(), "m-middle", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); (err == nil) != allowed {
			t.Errorf("%s: %v, allowed: %t", patch, err, allowed)
		}
	}
}
