package apis_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// order asks for an action whose spec has, beside what every one needs, the given fields.
func order(t *testing.T, fields string) (*unstructured.Unstructured, dynamic.ResourceInterface, error) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	actions := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("rtactions"))
	o, err := create(t, actions, "apiVersion: mckube.io/v1alpha1\nkind: RTAction\nmetadata: {generateName: test-}\nspec: {"+common(fields)+fields+"}")
	return o, actions, err
}

// common are the fields that every action needs, but for those that are given.
func common(fields string) string {
	out := "cause: c, beneficiary: {kind: Pod, namespace: ns, name: p}, "
	for key, value := range map[string]string{"reason": "NoCore", "timeout": "1m"} {
		if !strings.Contains(fields, key+":") {
			out += key + ": " + value + ", "
		}
	}
	return out
}

const somePods = "pods: [{namespace: ns, name: p, uid: u}]"

func TestRTActionAccepts(t *testing.T) {
	for _, fields := range []string{
		"kind: Preempt, node: a, " + somePods,
		"kind: Migrate, node: a, targetNode: b, " + somePods,
		"kind: Rearrange, node: a",
		"kind: Rearrange, node: a, moves: [{podUID: u, container: c, core: 0}, {podUID: u, container: d, core: 3}]",
		"kind: OpenNode, nodePool: x",
		"kind: ReplaceNode, node: a, nodePool: x, startBy: '2026-01-01T00:00:00.000000Z', uses: [{resource: Cluster}, {resource: Node, name: b, amount: 1}]",
	} {
		o, _, err := order(t, fields)
		if err != nil {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		criticality, _, _ := unstructured.NestedString(o.Object, "spec", "beneficiary", "criticality")
		attempt, _, _ := unstructured.NestedInt64(o.Object, "spec", "attempt")
		if criticality != "Low" || attempt != 1 {
			t.Errorf("%s: criticality %q, attempt %d by default", fields, criticality, attempt)
		}
	}
}

func TestRTActionRefuses(t *testing.T) {
	for _, tc := range []struct{ fields, want string }{
		{"kind: Dance, node: a", `supported values: "Rearrange"`},
		{"kind: Preempt, node: a", "kinds Migrate and Preempt need the pods that they move"},
		{"kind: Migrate, node: a", "kinds Migrate and Preempt need the pods that they move"},
		{"kind: Preempt", "an action of this kind needs a node or pods that it is done to"},
		{"kind: Rearrange, " + somePods, "kinds ReplaceNode and Rearrange need a node"},
		{"kind: ReplaceNode, " + somePods, "kinds ReplaceNode and Rearrange need a node"},
		{"kind: Preempt, nodePool: x, " + somePods, "nodePool is only for kinds OpenNode and ReplaceNode"},
		{"kind: Preempt, moves: [{podUID: u, container: c, core: 1}], " + somePods, "moves is only for kind Rearrange"},
		{"kind: Rearrange, node: a, moves: [{podUID: u, container: c, core: -1}]", "greater than or equal to 0"},
		{"kind: Rearrange, node: a, moves: [{podUID: u, container: c, core: 1}, {podUID: u, container: c, core: 2}]", "Duplicate value"},
		{"kind: Rearrange, node: a, moves: [" + strings.Repeat("{podUID: u, container: c, core: 1}, ", 65) + "]", "must have at most 64 items"},
		{"kind: Preempt, targetNode: x, " + somePods, "targetNode is only for kind Migrate"},
		{"kind: Rearrange, node: a, timeout: 25h", "timeout must be more than 0s and at most 24h"},
		{"kind: Rearrange, node: a, timeout: 0s", "timeout must be more than 0s and at most 24h"},
		{"kind: Rearrange, node: a, reason: no core", "spec.reason"},
		{"kind: Rearrange, node: a, attempt: 0", "greater than or equal to 1"},
		{"kind: Rearrange, node: a, uses: [{resource: Core}]", `supported values: "Pod"`},
		{"kind: Preempt, pods: [{namespace: ns, name: p, uid: u}, {namespace: ns, name: q, uid: u}]", "Duplicate value"},
		{"kind: Preempt, pods: []", "should have at least 1 items"},
	} {
		if _, _, err := order(t, tc.fields); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that says %q", tc.fields, err, tc.want)
		}
	}
}

func TestRTActionStays(t *testing.T) {
	o, actions, err := order(t, "kind: Rearrange, node: a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = actions.Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(`{"spec":{"node":"b"}}`), metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), "an action cannot be changed; delete it to withdraw it") {
		t.Errorf("changed: %v", err)
	}
	read, err := actions.Get(t.Context(), o.GetName(), metav1.GetOptions{})
	if phase, _, _ := unstructured.NestedString(read.Object, "status", "phase"); err != nil || phase != "Waiting" {
		t.Errorf("a new action is %q: %v", phase, err)
	}
}
