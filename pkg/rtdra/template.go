package rtdra

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// The ways to serve a claim whose McKube prefers some cores, best first.
const (
	// RequestPreferred is the preferred cores.
	RequestPreferred = "preferred"
	// RequestAny is any core.
	RequestAny = "any"
)

const (
	maxPodClaimName = 63  // a DNS label
	maxTemplateName = 253 // a DNS subdomain
	hashLength      = 8
)

// ClaimName is the name, within a pod, of the claim of a container.
func ClaimName(container string) string {
	name := "rt-" + container
	if len(name) <= maxPodClaimName {
		return name
	}
	return cut(name, maxPodClaimName-hashLength-1) + "-" + hash(container)
}

// Template is what m's pods make their claims from: the bandwidth that the admission test charges for
// m's budget, on one core whose budgets end at most granularity microseconds late. m owns it. It is
// immutable, so what a changed m asks for is in another template, of another name.
func Template(m *mcv1.McKube, granularity int64) (*resourcev1.ResourceClaimTemplate, error) {
	server, err := ServerOf(m, "", "")
	if err != nil {
		return nil, err
	}
	spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{request(server, granularity)},
	}}
	name, err := templateName(m.Name, spec)
	if err != nil {
		return nil, err
	}
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, mcv1.SchemeGroupVersion.WithKind("McKube"))},
		},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec},
	}, nil
}

// TemplateName is the name of Template(m, granularity).
func TemplateName(m *mcv1.McKube, granularity int64) (string, error) {
	template, err := Template(m, granularity)
	if err != nil {
		return "", err
	}
	return template.Name, nil
}

// suffixAwaited ends the names of templates for pods that came before their McKube.
const suffixAwaited = "-rt-awaited"

// AwaitedTemplate names the template of a container whose pod came before its McKube. The pod waits for
// its claim until the template is there, which the McKube fills when it comes. base is the pod's name or,
// while it has none, what that will begin with: pods of one owner share the template.
func AwaitedTemplate(base, container string) string {
	suffix := "-" + hash(base+"/"+container) + suffixAwaited
	return cut(base, maxTemplateName-len(suffix)) + suffix
}

// Awaited tells whether AwaitedTemplate made the name.
func Awaited(template string) bool { return strings.HasSuffix(template, suffixAwaited) }

// ClaimSpec is what Template's claims ask for.
func ClaimSpec(m *mcv1.McKube, granularity int64) (resourcev1.ResourceClaimSpec, error) {
	template, err := Template(m, granularity)
	if err != nil {
		return resourcev1.ResourceClaimSpec{}, err
	}
	return template.Spec.Spec, nil
}

// request asks for a share of one core: of a preferred one, or else of any.
func request(s rt.Server, granularity int64) resourcev1.DeviceRequest {
	share := map[resourcev1.QualifiedName]resource.Quantity{
		v1alpha1.CapacityRTBandwidth: *resource.NewQuantity(int64(s.Charge(granularity)), resource.DecimalSI),
	}
	selectors := Selectors(s, granularity)
	if len(s.Preferred) == 0 {
		return resourcev1.DeviceRequest{Name: v1alpha1.RequestCore, Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: v1alpha1.DeviceClassRTCore, Selectors: selectors,
			AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourcev1.CapacityRequirements{Requests: share},
		}}
	}
	way := func(name string, selectors []resourcev1.DeviceSelector) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{
			Name: name, DeviceClassName: v1alpha1.DeviceClassRTCore, Selectors: selectors,
			AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourcev1.CapacityRequirements{Requests: share},
		}
	}
	preferred := append([]resourcev1.DeviceSelector{selector(coreIn(s.Preferred))}, selectors...)
	return resourcev1.DeviceRequest{Name: v1alpha1.RequestCore, FirstAvailable: []resourcev1.DeviceSubRequest{
		way(RequestPreferred, preferred), way(RequestAny, selectors),
	}}
}

// templateName is the McKube's name with a hash of what the claims ask for.
func templateName(mckube string, spec resourcev1.ResourceClaimSpec) (string, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encoding the claim of McKube %s: %w", mckube, err)
	}
	suffix := "-rt-" + hash(string(data))
	return cut(mckube, maxTemplateName-len(suffix)) + suffix, nil
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// cut shortens a name to what an object may be called, if something follows.
func cut(name string, length int) string {
	if len(name) > length {
		name = name[:length]
	}
	return strings.TrimRight(name, "-.")
}
