package apis_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

func TestNamesThatPeopleType(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		group           schema.GroupVersion
		resource, short string
		namespaced      bool
	}{
		{mcv1.SchemeGroupVersion, "mckubes", "mck", true},
		{v1alpha1.SchemeGroupVersion, "rtnodes", "rtn", false},
	} {
		list, err := client.ServerResourcesForGroupVersion(want.group.String())
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]metav1.APIResource{}
		for _, r := range list.APIResources {
			names[r.Name] = r
		}
		r, ok := names[want.resource]
		if !ok || r.Namespaced != want.namespaced || !slices.Equal(r.ShortNames, []string{want.short}) || !slices.Equal(r.Categories, []string{"mainspring"}) {
			t.Errorf("%s: %+v", want.resource, r)
		}
		if _, ok := names[want.resource+"/status"]; !ok {
			t.Errorf("%s has no status subresource", want.resource)
		}
	}
}

// table is what kubectl get prints.
func table(t *testing.T, group schema.GroupVersion, path ...string) *metav1.Table {
	t.Helper()
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &group, "/apis", scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	result := &metav1.Table{}
	err = client.Get().AbsPath(append([]string{"/apis", group.Group, group.Version}, path...)...).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Into(result)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestColumnsOfMcKubes(t *testing.T) {
	object, err := create(t, mckubes, "apiVersion: mcoperator.sdv.com/v1\nkind: McKube\nmetadata: {name: columns}\n"+
		"spec: {podname: p, criticality: High, rtSettings: {period: 10000, runtime_low: 1000, runtime_hi: 2000}}")
	if err != nil {
		t.Fatal(err)
	}
	object.Object["status"] = map[string]any{
		"node": "edge-1", "allocatedCore": "3", "currentRuntime": "hi",
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Applied", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}
	if _, err := mckubes.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := table(t, mcv1.SchemeGroupVersion, "namespaces", "default", "mckubes", "columns")
	expectRow(t, got, map[string]any{
		"Name": "columns", "Criticality": "High", "Node": "edge-1", "Core": "3", "Runtime": "hi", "Ready": "True", "Reason": "Applied",
		"Pod": "p", "Period": float64(10_000), "Low": float64(1_000), "Hi": float64(2_000),
	})
}

func TestColumnsOfRTNodes(t *testing.T) {
	object, err := create(t, rtnodes, "apiVersion: mckube.io/v1alpha1\nkind: RTNode\nmetadata: {name: columns}\nspec: {}")
	if err != nil {
		t.Fatal(err)
	}
	condition := func(kind string) map[string]any {
		return map[string]any{"type": kind, "status": "True", "reason": "Obeys", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
	}
	object.Object["status"] = map[string]any{
		"backend": "simulated", "budgetGranularityUs": int64(100), "pressure": map[string]any{"cpuPercent": int64(40)},
		"conditions": []any{condition("Ready"), condition("AgentAlive")},
	}
	if _, err := rtnodes.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := table(t, v1alpha1.SchemeGroupVersion, "rtnodes", "columns")
	expectRow(t, got, map[string]any{
		"Name": "columns", "Backend": "simulated", "Granularity": float64(100), "CPU%": float64(40), "Ready": "True", "Alive": "True",
	})
}

func expectRow(t *testing.T, got *metav1.Table, want map[string]any) {
	t.Helper()
	if len(got.Rows) != 1 {
		t.Fatalf("%d rows", len(got.Rows))
	}
	cells := map[string]any{}
	for i, c := range got.ColumnDefinitions {
		cells[c.Name] = got.Rows[0].Cells[i]
	}
	for name, value := range want {
		cell := cells[name]
		if n, ok := cell.(int64); ok {
			cell = float64(n)
		}
		if cell != value {
			t.Errorf("column %s is %v (%T), want %v", name, cell, cell, value)
		}
	}
	if _, ok := cells["Age"]; !ok {
		t.Error("there is no column Age")
	}
}
