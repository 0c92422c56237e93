package apis_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// Clients of a real API server with our CRDs.
var (
	config  *rest.Config
	faults  dynamic.ResourceInterface
	mckubes dynamic.ResourceInterface
	rtnodes dynamic.ResourceInterface
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx := context.Background()
	options := localplane.Options{}
	var err error
	if options.Bin, err = toolchain.Ensure(ctx, os.Stderr, options.Tools()...); err != nil {
		return 1, err
	}
	plane, err := localplane.Start(ctx, options)
	if err != nil {
		return 1, err
	}
	defer plane.Stop() //nolint:errcheck // the tests are over
	crds, err := apis.CRDs()
	if err != nil {
		return 1, err
	}
	for _, crd := range crds {
		data, err := yaml.Marshal(crd)
		if err != nil {
			return 1, err
		}
		if err := plane.ApplyCRDs(ctx, data); err != nil {
			return 1, err
		}
	}
	config = plane.RESTConfig()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return 1, err
	}
	faults = client.Resource(v1alpha1.SchemeGroupVersion.WithResource("simulatedfaults"))
	rtnodes = client.Resource(v1alpha1.SchemeGroupVersion.WithResource("rtnodes"))
	mckubes = client.Resource(mcv1.SchemeGroupVersion.WithResource("mckubes")).Namespace("default")
	return m.Run(), nil
}

func apply(t *testing.T, spec string) error {
	t.Helper()
	_, err := create(t, faults, "apiVersion: mckube.io/v1alpha1\nkind: SimulatedFault\nmetadata: {generateName: test-}\nspec: "+spec)
	return err
}

func create(t *testing.T, kind dynamic.ResourceInterface, text string) (*unstructured.Unstructured, error) {
	t.Helper()
	object := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return kind.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
}

func TestSimulatedFaultAccepts(t *testing.T) {
	for _, spec := range []string{
		"{type: Shortage}",
		"{type: Shortage, count: 3, duration: 1m30s, selector: {instanceTypes: [a], zones: [b], capacityTypes: [spot, on-demand, reserved], nodePools: [c]}}",
		"{type: SpotInterruption, notice: 30s, count: 1000}",
		"{type: SpotInterruption, notice: 0s, selector: {capacityTypes: [spot], nodeClaims: [x]}}",
		"{type: SlowRegistration, delay: 1m}",
		"{type: FailedRegistration}",
		"{type: FailedRegistration, delay: 1.5s}",
		"{type: NodeFailure}",
		"{type: NodeFailure, condition: KWOKUnhealthy, selector: {nodeClaims: [x]}}",
	} {
		if err := apply(t, spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestSimulatedFaultRefuses(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{"{}", "spec.type"},
		{"{type: Earthquake}", `supported values: "Shortage"`},
		{"{type: Shortage, extent: 3}", `unknown field "spec.extent"`},
		{"{type: Shortage, count: 0}", "greater than or equal to 1"},
		{"{type: Shortage, count: 1001}", "less than or equal to 1000"},
		{"{type: Shortage, notice: 1m}", "notice is only for type SpotInterruption"},
		{"{type: Shortage, delay: 1m}", "delay is only for types SlowRegistration and FailedRegistration"},
		{"{type: Shortage, condition: Sick}", "condition is only for type NodeFailure"},
		{"{type: Shortage, duration: soon}", "spec.duration"},
		{"{type: Shortage, duration: -1m}", "spec.duration"},
		{"{type: Shortage, duration: 8761h}", "duration must be at most 8760h"},
		{"{type: SpotInterruption, notice: 8761h}", "notice must be at most 8760h"},
		{"{type: SlowRegistration, delay: 8761h}", "delay must be at most 8760h"},
		// What Go cannot parse must not get in: it would blind every reader of the kind.
		{"{type: Shortage, duration: 9999999h}", "spec.duration"},
		{"{type: Shortage, duration: 99999999999999999999h}", "spec.duration"},
		{"{type: Shortage, selector: {nodeClaims: [x]}}", "strikes offerings, not machines"},
		{"{type: Shortage, selector: {capacityTypes: [free]}}", `supported values: "spot", "on-demand", "reserved"`},
		{"{type: Shortage, selector: {zones: [a, a]}}", "Duplicate value"},
		{"{type: SpotInterruption, selector: {capacityTypes: [spot, on-demand]}}", "may hold nothing but spot"},
		{"{type: SlowRegistration}", "needs a delay"},
		{"{type: NodeFailure, condition: Ready}", "leave condition out to stop the kubelet"},
		{"{type: NodeFailure, condition: Not-A-Type}", "spec.condition"},
	} {
		if err := apply(t, tc.spec); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that says %q", tc.spec, err, tc.want)
		}
	}
}

func TestSimulatedFaultTypeStays(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mckube.io/v1alpha1", "kind": "SimulatedFault",
		"metadata": map[string]any{"name": "stays"}, "spec": map[string]any{"type": "Shortage"},
	}}
	if _, err := faults.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"type":"NodeFailure"}}`: "type cannot be changed",
		`{"spec":{"count":2}}`:            "",
	} {
		_, err := faults.Patch(t.Context(), "stays", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", patch, err, want)
		}
	}
}

// The examples that users copy are valid.
func TestExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/faults/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := map[string]any{}
		if err := yaml.UnmarshalStrict(data, &object); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		if _, err := faults.Create(t.Context(), &unstructured.Unstructured{Object: object}, options); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
