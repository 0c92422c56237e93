package simulated_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

// The example NodePools are valid, bring the node class they name, and the cloud has a machine for
// each.
func TestExampleNodePools(t *testing.T) {
	machines, err := catalogue.Default()
	if err != nil {
		t.Fatal(err)
	}
	types, err := simulated.InstanceTypes(context.Background(), machines)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"general": "on-demand c-1x-amd64-linux", "spot": "spot c-1x-amd64-linux", "edge-rt": "on-demand edge-atom-4x-amd64-linux",
		"gpu": "spot t4-1g-4x-amd64-linux", "reserved": "on-demand s-1x-amd64-linux",
	} {
		t.Run(name, func(t *testing.T) {
			class, pool := decodeExample(t, filepath.Join("../../../examples/nodepools", name+".yaml"))
			if err := pool.RuntimeValidate(context.Background()); err != nil {
				t.Errorf("NodePool: %v", err)
			}
			if ref := pool.Spec.Template.Spec.NodeClassRef.Name; ref != class.Name {
				t.Errorf("NodePool names node class %q, the file brings %q", ref, class.Name)
			}
			w := newWorld(t, interceptor.Funcs{}, pool)
			if class.Name != nodeClass().Name { // the world has that one
				w.create(t, class)
			}
			w.provider, err = simulated.New(context.Background(), simulated.Options{
				Client: w.process, Clock: w.clock, Recorder: w.recorder, Catalogue: machines, InstanceTypes: types,
			})
			if err != nil {
				t.Fatal(err)
			}
			claim := nodeClaim("claim", pool.Name, pool.Spec.Template.Spec.Requirements...)
			claim.Spec.NodeClassRef.Name = class.Name
			created, err := w.provider.Create(context.Background(), claim)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(created); got[:min(len(got), len(want))] != want {
				t.Errorf("launched %s, want %s", got, want)
			}
		})
	}
}

func decodeExample(t *testing.T, file string) (*kwokapi.KWOKNodeClass, *karpv1.NodePool) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	class, pool := &kwokapi.KWOKNodeClass{}, &karpv1.NodePool{}
	decoder := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for _, into := range []any{class, pool} {
		document, err := decoder.Read()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if _, err := decoder.Read(); !errors.Is(err, io.EOF) {
		t.Fatalf("%s: more than two documents, %v", file, err)
	}
	return class, pool
}

// A file of Karpenter's kwok provider replaces the catalogue's types.
func TestInstanceTypesFile(t *testing.T) {
	machines, err := catalogue.Default()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "types.json")
	const one = `[{"name": "m5.large", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "2", "memory": "8Gi"},
		"offerings": [{"Price": %s, "Available": true, "ReservationCapacity": 1, "Requirements": [
			{"key": "karpenter.sh/capacity-type", "operator": "In", "values": [%q]},
			{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]}]}]}]`
	write := func(text string) context.Context {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return kwokoptions.ToContext(context.Background(), &kwokoptions.Options{InstanceTypesFilePath: file})
	}
	types, err := simulated.InstanceTypes(write(fmt.Sprintf(one, "0.1", "spot")), machines)
	if err != nil || len(types) != 1 || types[0].Name != "m5.large" {
		t.Fatalf("types %v, %v", types, err)
	}
	if _, err := simulated.InstanceTypes(write("{"), machines); err == nil {
		t.Error("a broken file was accepted")
	}
	types, err = simulated.InstanceTypes(write(fmt.Sprintf(one, "0.1", "reserved")), machines)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := simulated.New(context.Background(), simulated.Options{Catalogue: machines, InstanceTypes: types}); err == nil {
		t.Error("a reserved offering without reservation was accepted")
	}
}

// What is on offer depends on what the NodePool names.
func TestOffersByAudience(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{})
	for _, tc := range []struct {
		name           string
		pool           *karpv1.NodePool
		edge, reserved bool
	}{
		{"nothing named", nodePool("p"), false, false},
		{"class as requirement", nodePool("p", requires("mckube.io/hardware-class", "edge")), true, false},
		{"class as label", labelled(nodePool("p"), "mckube.io/hardware-class", "edge"), true, false},
		{"reserved", nodePool("p", requires(karpv1.CapacityTypeLabelKey, "spot", "reserved")), false, true},
		{"no NodePool", nil, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			types := w.types(t, tc.pool)
			if _, edge := types["box"]; edge != tc.edge {
				t.Errorf("edge machine on offer: %v, want %v", edge, tc.edge)
			}
			capacityTypes := types["large"].Requirements.Get(karpv1.CapacityTypeLabelKey).Values()
			if reserved := slices.Contains(capacityTypes, "reserved"); reserved != tc.reserved || (len(types["large"].Offerings) == 5) != tc.reserved {
				t.Errorf("reserved on offer: %v in %d offerings, want %v", reserved, len(types["large"].Offerings), tc.reserved)
			}
		})
	}
}

func labelled(pool *karpv1.NodePool, key, value string) *karpv1.NodePool {
	pool.Spec.Template.Labels = map[string]string{key: value}
	return pool
}
