package apis_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// resource is a client of one of our cluster-scoped kinds.
func resource(t *testing.T, name string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(v1alpha1.SchemeGroupVersion.WithResource(name))
}

// machineWith is an InventoryMachine whose spec has these fields beside, or in place of, the necessary ones.
func machineWith(t *testing.T, fields string) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]any{}
	base := "{hardwareClass: edge, capacity: {cpu: 4, memory: 8Gi}, power: {exec: {command: switch}}}"
	for _, text := range []string{base, fields} {
		if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mckube.io/v1alpha1", "kind": "InventoryMachine",
		"metadata": map[string]any{"generateName": "machine-"}, "spec": spec,
	}}
}

func createMachine(t *testing.T, fields string) (*unstructured.Unstructured, error) {
	t.Helper()
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	return resource(t, "inventorymachines").Create(t.Context(), machineWith(t, fields), options)
}

func TestInventoryMachineAccepts(t *testing.T) {
	for _, fields := range []string{
		"{}",
		"{nodeName: edge-1.example, architecture: arm64, zone: hall-1, pricePerHour: '0.031', watts: {idle: 6, max: '14.5'}}",
		"{watts: {idle: 100, max: 500, devices: {idle: '60.5', max: 360}}}",
		"{labels: {example.com/rack: a1, mckube.io/gpu-model: T4}, reserved: {cpu: 200m}, adoptInto: edge, availability: Withheld}",
		"{cores: {coresPerNuma: 8, smt: true, housekeeping: [0, 8], bandwidthPpm: 950000, backend: hcbs, escalationReservePpm: 50000, escalationCores: [15]}}",
		"{bootTimeout: 14m}",
		"{power: {redfish: {endpoint: 'https://10.0.0.7', credentials: {name: bmc}, ca: {name: ca}, auth: Session, shutdownGrace: 0s}}}",
		"{power: {redfish: {endpoint: 'https://[fd00::7]:8443/', credentials: {name: bmc}}}}",
		"{power: {exec: {command: ipmi.sh, args: [-H, 10.0.0.7], secret: {name: ipmi}}, wakeOnLAN: {mac: '02:00:5e:10:00:07', address: 10.0.0.255, port: 7}}}",
		"{power: {webhook: {url: 'https://pdu.example/outlet/7', token: {name: pdu}}}}",
	} {
		if _, err := createMachine(t, fields); err != nil {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

func TestInventoryMachineRefuses(t *testing.T) {
	for fields, want := range map[string]string{
		"{hardwareClass: Edge}":                                                       "spec.hardwareClass",
		"{architecture: riscv}":                                                       `supported values: "amd64", "arm64"`,
		"{capacity: {cpu: 4}}":                                                        "capacity must name cpu and memory",
		"{pricePerHour: '-1'}":                                                        "pricePerHour must not be negative",
		"{labels: {kubernetes.io/hostname: x}}":                                       "set by their owners",
		"{labels: {node.kubernetes.io/instance-type: x}}":                             "set by their owners",
		"{labels: {karpenter.sh/nodepool: x}}":                                        "set by their owners",
		"{labels: {mckube.io/hardware-class: x}}":                                     "set by their owners",
		"{cores: {coresPerNuma: 4, housekeeping: [4]}}":                               "housekeeping names a CPU that the layout does not have",
		"{cores: {coresPerNuma: 4, escalationCores: [9]}}":                            "escalationCores names a CPU that the layout does not have",
		"{cores: {coresPerNuma: 4, escalationReservePpm: 950000}}":                    "escalationReservePpm must be less than bandwidthPpm",
		"{cores: {coresPerNuma: 4, backend: magic}}":                                  `supported values: "hcbs"`,
		"{bootTimeout: 15m}":                                                          "bootTimeout must be from 1s to 14m",
		"{watts: {idle: 10, max: 9}}":                                                 "max at least idle",
		"{watts: {idle: -1, max: 9}}":                                                 "idle must be at least 0 watts",
		"{watts: {idle: 10, max: 90, devices: {idle: 11, max: 20}}}":                  "devices must leave the host at least 0 watts",
		"{watts: {idle: 10, max: 90, devices: {idle: 1, max: 85}}}":                   "no less under full load",
		"{watts: {idle: 10, max: 90, devices: {idle: 5, max: 4}}}":                    "max at least idle",
		"{availability: Perhaps}":                                                     `supported values: "Offered", "Withheld", "OutOfService"`,
		"{power: {}}":                                                                 "exactly one of redfish, exec and webhook must be given",
		"{power: {wakeOnLAN: {mac: '02:00:5e:10:00:07'}}}":                            "exactly one of redfish, exec and webhook must be given",
		"{power: {exec: {command: a}, webhook: {url: 'https://a.example'}}}":          "exactly one of redfish, exec and webhook must be given",
		"{power: {exec: {command: ../a}}}":                                            "spec.power.exec.command",
		"{power: {exec: {command: /bin/sh}}}":                                         "spec.power.exec.command",
		"{power: {webhook: {url: 'http://a.example'}}}":                               "url must begin with https://",
		"{power: {redfish: {endpoint: 'http://10.0.0.7', credentials: {name: bmc}}}}": "spec.power.redfish.endpoint",
		"{power: {redfish: {endpoint: 'https://10.0.0.7/redfish/v1/Systems/1', credentials: {name: bmc}}}}":      "spec.power.redfish.endpoint",
		"{power: {redfish: {endpoint: 'https://10.0.0.7'}}}":                                                     "credentials",
		"{power: {redfish: {endpoint: 'https://10.0.0.7', credentials: {name: bmc}, insecureSkipVerify: true}}}": `unknown field "spec.power.redfish.insecureSkipVerify"`,
		"{power: {exec: {command: a}, wakeOnLAN: {mac: '02-00-5e-10-00-07'}}}":                                   "spec.power.wakeOnLAN.mac",
		"{power: {exec: {command: a}, wakeOnLAN: {mac: '02:00:5e:10:00:07', address: example.com}}}":             "address must be an IP address",
	} {
		if _, err := createMachine(t, fields); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", fields, err, want)
		}
	}
}

func TestInventoryMachineNodeNameStays(t *testing.T) {
	created, err := createMachine(t, "{nodeName: stays}")
	if err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"nodeName":"goes"}}`:    "nodeName cannot be changed",
		`{"spec":{"nodeName":null}}`:      "nodeName cannot be changed",
		`{"spec":{"hardwareClass":"gw"}}`: "",
	} {
		_, err := resource(t, "inventorymachines").Patch(t.Context(), created.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", patch, err, want)
		}
	}
}

func TestInventoryDefaults(t *testing.T) {
	created, err := createMachine(t, "{cores: {coresPerNuma: 4}, power: {redfish: {endpoint: 'https://10.0.0.9', credentials: {name: bmc}}}}")
	if err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string][]string{
		"amd64": {"spec", "architecture"}, "edge": {"spec", "zone"}, "Offered": {"spec", "availability"},
		"Basic": {"spec", "power", "redfish", "auth"}, "rtgroup": {"spec", "cores", "backend"},
	} {
		if got, _, _ := unstructured.NestedString(created.Object, path...); got != want {
			t.Errorf("%s is %q, want %q", strings.Join(path, "."), got, want)
		}
	}
}

// The examples that users copy are valid.
func TestInventoryExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/inventory/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]schema.GroupVersionResource{
		"InventoryMachine":   v1alpha1.SchemeGroupVersion.WithResource("inventorymachines"),
		"InventoryNodeClass": v1alpha1.SchemeGroupVersion.WithResource("inventorynodeclasses"),
		"Secret":             {Version: "v1", Resource: "secrets"},
	}
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
			known, ok := resources[object.GetKind()]
			if !ok {
				continue // Karpenter's kinds are not served here
			}
			options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}}
			target := dynamic.ResourceInterface(client.Resource(known))
			if object.GetNamespace() != "" {
				object.SetNamespace("default")
				target = client.Resource(known).Namespace("default")
			}
			if _, err := target.Create(t.Context(), object, options); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
