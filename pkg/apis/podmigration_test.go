package apis_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// movings are the objects of a kind that moves pods, in the namespace default where it has namespaces.
func movings(t *testing.T, resource string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	all := client.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource))
	if resource == "podmigrations" {
		return all.Namespace("default")
	}
	return all
}

// move creates a PodMigration with fields beside the pod's name.
func move(t *testing.T, fields string) (*unstructured.Unstructured, error) {
	t.Helper()
	return create(t, movings(t, "podmigrations"), "apiVersion: mckube.io/v1alpha1\nkind: PodMigration\nmetadata: {generateName: test-}\nspec: {podName: p"+fields+"}")
}

func TestPodMigrationsAreValidated(t *testing.T) {
	for _, tc := range []struct{ fields, want string }{
		{"", ""},
		{", podUID: u, targetNode: b, strategy: Checkpoint, trigger: Repair, timeout: 24h, waitTimeout: 168h, ttlSecondsAfterFinished: 0", ""},
		{", timeout: 1s, waitTimeout: 1.5s", ""},
		{", strategy: Teleport", `supported values: "Checkpoint"`},
		{", trigger: Whim", `supported values: "Manual"`},
		{", targetNode: ''", "spec.targetNode"},
		{", timeout: 999ms", "timeout must be from 1s to 24h"},
		{", timeout: 24h1s", "timeout must be from 1s to 24h"},
		{", timeout: soon", "spec.timeout"},
		{", timeout: 99999999999999999999h", "spec.timeout"}, // which Go could not read
		{", waitTimeout: 0s", "waitTimeout must be from 1s to 168h"},
		{", waitTimeout: 169h", "waitTimeout must be from 1s to 168h"},
		{", ttlSecondsAfterFinished: -1", "spec.ttlSecondsAfterFinished"},
		{", ttlSecondsAfterFinished: 604801", "spec.ttlSecondsAfterFinished"},
		{", reason: " + strings.Repeat("x", 1025), "spec.reason"},
		{", force: true", `unknown field "spec.force"`},
	} {
		o, err := move(t, tc.fields)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.fields, err, tc.want)
		}
		if tc.fields != "" || err != nil {
			continue
		}
		if spec := o.Object["spec"]; fmt.Sprint(spec) != "map[abort:false dryRun:false podName:p trigger:Manual ttlSecondsAfterFinished:3600]" {
			t.Errorf("by default it is %v", spec)
		}
	}
	if _, err := create(t, movings(t, "podmigrations"), "apiVersion: mckube.io/v1alpha1\nkind: PodMigration\nmetadata: {generateName: test-}\nspec: {}"); err == nil || !strings.Contains(err.Error(), "spec.podName") {
		t.Errorf("one of no pod: %v", err)
	}
}

// changed creates an object and tells what comes of a patch of its spec.
func changed(t *testing.T, resource string, o *unstructured.Unstructured, patch string) error {
	t.Helper()
	_, err := movings(t, resource).Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(`{"spec":`+patch+`}`), metav1.PatchOptions{})
	return err
}

// What was decided on stays; when it ends may change, but for an abort, which is for good.
func TestWhatAPodMigrationAsksForStays(t *testing.T) {
	const named = ", podUID: u, targetNode: b, strategy: Surge, timeout: 1m"
	for _, tc := range []struct{ fields, patch, want string }{
		{"", `{"podName":"q"}`, "podName, trigger and dryRun cannot be changed"},
		{"", `{"trigger":"Repair"}`, "podName, trigger and dryRun cannot be changed"},
		{"", `{"dryRun":true}`, "podName, trigger and dryRun cannot be changed"},
		{"", `{"targetNode":"c"}`, "targetNode cannot be changed"},
		{named, `{"targetNode":"c"}`, "targetNode cannot be changed"},
		{named, `{"targetNode":null}`, "targetNode cannot be changed"},
		{"", `{"strategy":"Evict"}`, "strategy cannot be changed"},
		{named, `{"strategy":"Evict"}`, "strategy cannot be changed"},
		{named, `{"strategy":null}`, "strategy cannot be changed"},
		{"", `{"podUID":"v"}`, "podUID cannot be changed"},
		{named, `{"podUID":"v"}`, "podUID cannot be changed"},
		{named, `{"podUID":null}`, "podUID cannot be changed"},
		{"", `{"timeout":"2m"}`, "timeout cannot be changed"},
		{named, `{"timeout":"2m"}`, "timeout cannot be changed"},
		{named, `{"timeout":null}`, "timeout cannot be changed"},
		{", abort: true", `{"abort":false}`, "abort cannot be taken back"},
		{named, `{"abort":true,"ttlSecondsAfterFinished":1,"waitTimeout":"1m","reason":"another"}`, ""},
	} {
		o, err := move(t, tc.fields)
		if err != nil {
			t.Fatal(err)
		}
		err = changed(t, "podmigrations", o, tc.patch)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s then %s: error %v, want %q", tc.fields, tc.patch, err, tc.want)
		}
	}
}

// checkpointed creates a NodeCheckpoint at a stage.
func checkpointed(t *testing.T, stage, more string) (*unstructured.Unstructured, error) {
	t.Helper()
	fields := "podNamespace: default, podName: p, podUID: u, sourceNode: a, expires: '2026-01-01T00:00:00Z', stage: " + stage
	if !strings.Contains(more, "targetNode") {
		more += ", targetNode: b"
	}
	if !strings.Contains(more, "containers") {
		more += ", containers: [{name: app}]"
	}
	return create(t, movings(t, "nodecheckpoints"), "apiVersion: mckube.io/v1alpha1\nkind: NodeCheckpoint\nmetadata: {generateName: test-}\nspec: {"+fields+more+"}")
}

func TestNodeCheckpointsAreValidated(t *testing.T) {
	for _, tc := range []struct{ stage, more, want string }{
		{"Checkpoint", "", ""},
		{"Checkpoint", ", maxBytes: 1", ""},
		{"Checkpoint", ", maxBytes: 0", "spec.maxBytes"},
		{"Checkpoint", ", targetNode: a", "targetNode must be another node than sourceNode"},
		{"Checkpoint", ", containers: []", "spec.containers"},
		{"Checkpoint", ", containers: [{name: app}, {name: app}]", "Duplicate value"},
		{"Thaw", "", `supported values: "Checkpoint"`},
	} {
		if _, err := checkpointed(t, tc.stage, tc.more); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s%s: error %v, want %q", tc.stage, tc.more, err, tc.want)
		}
	}
}

// A NodeCheckpoint goes on, and never back: from each stage only to those that leave at most one of source and copy at work.
func TestStagesOfNodeCheckpoints(t *testing.T) {
	all := []string{"Checkpoint", "Transfer", "Restore", "HandOver", "Release", "Discard"}
	may := map[string]string{
		"Checkpoint": "Checkpoint Transfer Restore HandOver Release Discard", "Transfer": "Transfer Restore HandOver Release Discard",
		"Restore": "Restore HandOver Release Discard", "HandOver": "HandOver Release", "Release": "Release", "Discard": "Discard",
	}
	for _, from := range all {
		for _, to := range all {
			o, err := checkpointed(t, from, "")
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Contains(" "+may[from]+" ", " "+to+" ")
			if err := changed(t, "nodecheckpoints", o, `{"stage":"`+to+`","expires":"2026-01-02T00:00:00Z"}`); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "stage can") {
				t.Errorf("from %s to %s: error %v", from, to, err)
			}
		}
	}
	o, err := checkpointed(t, "Checkpoint", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, patch := range []string{`{"podUID":"v"}`, `{"podName":"q"}`, `{"podNamespace":"other"}`, `{"sourceNode":"c"}`, `{"targetNode":"c"}`, `{"containers":[{"name":"other"}]}`} {
		if err := changed(t, "nodecheckpoints", o, patch); err == nil || !strings.Contains(err.Error(), "only stage, expires and maxBytes may be changed") {
			t.Errorf("%s: error %v", patch, err)
		}
	}
	if err := changed(t, "nodecheckpoints", o, `{"stage":"Transfer","expires":"2026-01-02T00:00:00Z","maxBytes":1}`); err != nil {
		t.Errorf("what may be changed: %v", err)
	}
}
