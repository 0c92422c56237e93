package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// preflightTimeout bounds each request of the preflight.
const preflightTimeout = 10 * time.Second

// requirement is a resource that the controllers cannot start without.
type requirement struct {
	group    schema.GroupVersion
	resource string
}

func (r requirement) String() string { return r.resource + "." + r.group.Group }

func requirements(gates options.FeatureGates, provider string) []requirement {
	karpenter := schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	list := []requirement{
		{karpenter, "nodepools"},
		{karpenter, "nodeclaims"},
		{schema.GroupVersion{Group: "resource.k8s.io", Version: "v1"}, "resourceclaims"},
		{kcloudv1alpha1.SchemeGroupVersion, "workloadoptimizers"},
		{kcloudv1alpha1.SchemeGroupVersion, "costpolicies"},
		{kcloudv1alpha1.SchemeGroupVersion, "powerpolicies"},
	}
	if provider == ProviderInventory {
		list = append(list, requirement{mckubev1alpha1.SchemeGroupVersion, "inventorymachines"}, requirement{mckubev1alpha1.SchemeGroupVersion, "inventorynodeclasses"})
	} else {
		list = append(list, requirement{mckubev1alpha1.SchemeGroupVersion, "simulatedfaults"},
			requirement{schema.GroupVersion{Group: "karpenter.kwok.sh", Version: "v1alpha1"}, "kwoknodeclasses"})
	}
	if gates.NodeOverlay {
		list = append(list, requirement{schema.GroupVersion{Group: "karpenter.sh", Version: "v1alpha1"}, "nodeoverlays"})
	}
	if gates.CapacityBuffer {
		list = append(list, requirement{schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1beta1"}, "capacitybuffers"})
	}
	return list
}

// preflight checks that our ports are free, and that the API server answers and serves what the
// controllers need, so that what is not prepared is named in one line instead of in the errors of
// thirty controllers.
func preflight(ctx context.Context, config *rest.Config, o *options.Options, provider string) error {
	for _, p := range ports(o) {
		if err := portFree(ctx, p.number); err != nil {
			return fmt.Errorf("--%s is %d: %w", p.flag, p.number, err)
		}
	}
	return preflightAPI(ctx, config, requirements(o.FeatureGates, provider))
}

func portFree(ctx context.Context, port int) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	return listener.Close()
}

func preflightAPI(ctx context.Context, config *rest.Config, needed []requirement) error {
	quick := rest.CopyConfig(config)
	quick.Timeout = preflightTimeout
	client, err := discovery.NewDiscoveryClientForConfig(quick)
	if err != nil {
		return fmt.Errorf("building the discovery client: %w", err)
	}
	info, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the API server at %s for its version: %w", config.Host, err)
	}
	if err := recent(info.GitVersion); err != nil {
		return fmt.Errorf("the API server at %s %w", config.Host, err)
	}
	missing, err := missingResources(ctx, client, needed)
	if err != nil {
		return fmt.Errorf("asking the API server at %s what it serves: %w", config.Host, err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("the API server at %s does not serve %s; install the chart mainspring-crds", config.Host, strings.Join(missing, ", "))
	}
	return nil
}

// oldestServer is the first release that serves device claims as resource.k8s.io/v1.
var oldestServer = version.MustParseSemantic("v1.34.0")

// recent refuses an API server that is older than what the controllers need. Pre-releases of that
// release are recent enough.
func recent(gitVersion string) error {
	v, err := version.ParseGeneric(gitVersion)
	if err != nil {
		return fmt.Errorf("says that its version is %q: %w", gitVersion, err)
	}
	if v.LessThan(oldestServer) {
		return fmt.Errorf("is Kubernetes %s; it must be 1.34 or later, and for real-time containers 1.36, or 1.34 with the feature gate DRAConsumableCapacity", gitVersion)
	}
	return nil
}

func missingResources(ctx context.Context, client discovery.ServerResourcesInterface, needed []requirement) ([]string, error) {
	var missing []string
	served := map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, r := range needed {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list, ok := served[r.group]
		if !ok {
			var err error
			if list, err = client.ServerResourcesForGroupVersion(r.group.String()); err != nil && !isNotServed(err) {
				return nil, err
			}
			served[r.group] = list
		}
		if !serves(list, r.resource) {
			missing = append(missing, r.String())
		}
	}
	return missing, nil
}

func isNotServed(err error) bool {
	group := (*discovery.ErrGroupDiscoveryFailed)(nil)
	return apierrors.IsNotFound(err) || errors.As(err, &group)
}

func serves(list *metav1.APIResourceList, resource string) bool {
	if list == nil {
		return false
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == resource {
			return true
		}
	}
	return false
}
