package localplane_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %NAME%.localplane.test}
spec:
  group: localplane.test
  names: {kind: %KIND%, plural: %NAME%}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`

func crd(name, kind string) string {
	return strings.NewReplacer("%NAME%", name, "%KIND%", kind).Replace(widgets)
}

func TestApplyCRDsServesThem(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	manifest := []byte(crd("widgets", "Widget") + "---\n" + crd("gadgets", "Gadget"))
	for range 2 { // applying again changes nothing
		if err := plane.ApplyCRDs(t.Context(), manifest, []byte(crd("gizmos", "Gizmo"))); err != nil {
			t.Fatal(err)
		}
	}
	client, err := dynamic.NewForConfig(plane.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for kind, plural := range map[string]string{"Widget": "widgets", "Gadget": "gadgets", "Gizmo": "gizmos"} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "localplane.test/v1", "kind": kind, "metadata": map[string]any{"name": "one"},
		}}
		resource := schema.GroupVersionResource{Group: "localplane.test", Version: "v1", Resource: plural}
		if _, err := client.Resource(resource).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Errorf("creating a %s: %v", kind, err)
		}
	}
}

func TestApplyCRDsRefusesOtherObjects(t *testing.T) {
	t.Parallel()
	err := sharedPlane(t).ApplyCRDs(t.Context(), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"))
	if err == nil || !strings.Contains(err.Error(), `ConfigMap "x" is not a CustomResourceDefinition`) {
		t.Errorf("applying a ConfigMap: %v", err)
	}
}
