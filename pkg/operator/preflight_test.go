package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

func serving(lists ...*metav1.APIResourceList) discovery.ServerResourcesInterface {
	return &fake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: lists}}
}

func resources(group string, names ...string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: group}
	for _, n := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: n})
	}
	return list
}

func TestMissingResourcesAreNamed(t *testing.T) {
	client := serving(
		resources("karpenter.sh/v1", "nodepools"),
		resources("karpenter.kwok.sh/v1alpha1", "kwoknodeclasses"),
		resources("resource.k8s.io/v1", "resourceclaims"),
	)
	gates := options.FeatureGates{NodeOverlay: true, CapacityBuffer: true}
	missing, err := missingResources(context.Background(), client, requirements(gates, ProviderSimulated))
	if err != nil {
		t.Fatal(err)
	}
	want := "nodeclaims.karpenter.sh workloadoptimizers.kcloud.io costpolicies.kcloud.io powerpolicies.kcloud.io simulatedfaults.mckube.io nodeoverlays.karpenter.sh capacitybuffers.autoscaling.x-k8s.io"
	if got := strings.Join(missing, " "); got != want {
		t.Errorf("missing\n got %s\nwant %s", got, want)
	}
}

func TestMissingResourcesStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := missingResources(ctx, serving(), requirements(options.FeatureGates{}, ProviderSimulated)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPreflightNamesTheServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	err := preflightAPI(context.Background(), &rest.Config{Host: server.URL}, requirements(options.FeatureGates{}, ProviderSimulated))
	if err == nil || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("got %v", err)
	}
}

func TestPreflightNamesAPortInUse(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	err = preflight(t.Context(), &rest.Config{}, &options.Options{MetricsPort: port}, ProviderSimulated)
	want := fmt.Sprintf("--metrics-port is %d", port)
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestOldServersAreRefused(t *testing.T) {
	for given, want := range map[string]string{
		"v1.36.3": "", "v1.34.0": "", "v1.34.0-rc.1": "", "v1.34.2-eks-1234567": "", "v1.35.1+k3s1": "", "v2.0.0": "",
		"v1.33.9":        "is Kubernetes v1.33.9; it must be 1.34 or later",
		"v1.32.7-gke.10": "is Kubernetes v1.32.7-gke.10; it must be 1.34 or later",
		"new":            `says that its version is "new"`,
	} {
		if err := recent(given); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", given, err, want)
		}
	}
}

func TestPreflightNamesAnOldServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"major": "1", "minor": "33", "gitVersion": "v1.33.4"}`)
	}))
	defer server.Close()
	err := preflightAPI(t.Context(), &rest.Config{Host: server.URL}, requirements(options.FeatureGates{}, ProviderSimulated))
	want := "the API server at " + server.URL + " is Kubernetes v1.33.4; it must be 1.34 or later"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
