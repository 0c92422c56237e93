package operator

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
)

func TestInventoryOptions(t *testing.T) {
	_, own, err := parse(t, "--cloud-provider=inventory", "--inventory-labels=example.com/rack,slot", "--inventory-exec-directory=/tmp")
	if err != nil {
		t.Fatal(err)
	}
	if own.CloudProvider != ProviderInventory || !slices.Equal(own.Inventory.labels(), []string{"example.com/rack", "slot"}) {
		t.Errorf("options %+v", own.Inventory)
	}
	for argument, want := range map[string]string{
		"--inventory-secret-namespace=Not A Name": "--inventory-secret-namespace",
		"--inventory-exec-directory=relative":     "absolute path of a directory",
		"--inventory-exec-directory=/none":        `"/none"`,
		"--inventory-exec-directory=/etc/passwd":  "absolute path of a directory",
		"--inventory-labels=a,,b":                 `--inventory-labels has ""`,
		"--inventory-power-timeout=10ms":          "from 1s to 5m",
		"--inventory-quarantine=0s":               "from 1s to 24h",
		"--inventory-repair-toleration=-1s":       "longer than 0",
	} {
		if _, _, err := parse(t, argument); !IsUsageError(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", argument, err, want)
		}
	}
}

// What a controller needs served follows the provider that it runs with.
func TestRequirementsFollowTheProvider(t *testing.T) {
	names := func(provider string) string {
		var list []string
		for _, r := range requirements(options.FeatureGates{}, provider) {
			list = append(list, r.resource)
		}
		return strings.Join(list, " ")
	}
	if got := names(ProviderInventory); !strings.Contains(got, "inventorymachines inventorynodeclasses") || strings.Contains(got, "simulatedfaults") || strings.Contains(got, "kwok") {
		t.Errorf("the inventory needs %s", got)
	}
	if got := names(ProviderSimulated); strings.Contains(got, "inventory") || !strings.Contains(got, "simulatedfaults kwoknodeclasses") {
		t.Errorf("the simulated cloud needs %s", got)
	}
}

func TestSecretsAreReadByName(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "bmc"}, Data: map[string][]byte{"username": []byte("u")}}
	read := secretsIn(fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(secret).Build(), "here")
	if data, err := read(t.Context(), "bmc"); err != nil || string(data["username"]) != "u" {
		t.Errorf("%v, %v", data, err)
	}
	if _, err := read(t.Context(), "none"); !errors.Is(err, power.ErrConfig) {
		t.Errorf("error %v: a missing Secret needs a person", err)
	}
}
