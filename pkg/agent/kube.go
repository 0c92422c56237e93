package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// FieldManager is under which name the agent writes.
const FieldManager = "mainspring-agent"

// apiTimeout bounds one request to the API server, watches excepted.
const apiTimeout = 10 * time.Second

// API is what the agent writes to the API server. Errors are those of the API.
type API interface {
	// ApplyStatus applies the status of one certain RTNode.
	ApplyStatus(ctx context.Context, name string, uid types.UID, status v1alpha1.RTNodeStatus) error
	// RenewLease writes a Lease, which may not be there yet.
	RenewLease(ctx context.Context, l *coordinationv1.Lease) error
	// PatchNode changes labels and annotations of a Node.
	PatchNode(ctx context.Context, name string, labels, annotations map[string]string) error
	// CreateEvent and CountEvent write a core Event, new and repeated.
	CreateEvent(ctx context.Context, e *corev1.Event) error
	CountEvent(ctx context.Context, e *corev1.Event) error
}

// kube talks to the API server with clients for just the kinds that the agent knows: the whole client set
// would cost more memory than everything else together.
type kube struct {
	core, rt, leases, certificates rest.Interface
}

func newKube(config *rest.Config, client *http.Client) (*kube, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	of := func(gv schema.GroupVersion, path, contentType string) (rest.Interface, error) {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, path, codecs
		c.ContentType, c.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
		return rest.RESTClientForConfigAndClient(c, client)
	}
	core, err := of(corev1.SchemeGroupVersion, "/api", runtime.ContentTypeProtobuf)
	if err != nil {
		return nil, fmt.Errorf("making the client of v1: %w", err)
	}
	rt, err := of(v1alpha1.SchemeGroupVersion, "/apis", runtime.ContentTypeJSON)
	if err != nil {
		return nil, fmt.Errorf("making the client of %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	leases, err := of(coordinationv1.SchemeGroupVersion, "/apis", runtime.ContentTypeJSON)
	if err != nil {
		return nil, fmt.Errorf("making the client of %s: %w", coordinationv1.SchemeGroupVersion, err)
	}
	certificates, err := of(certificatesv1.SchemeGroupVersion, "/apis", runtime.ContentTypeJSON)
	if err != nil {
		return nil, fmt.Errorf("making the client of %s: %w", certificatesv1.SchemeGroupVersion, err)
	}
	return &kube{core: core, rt: rt, leases: leases, certificates: certificates}, nil
}

// CreateSigningRequest implements certrequest.API.
func (k *kube) CreateSigningRequest(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	created := &certificatesv1.CertificateSigningRequest{}
	err := k.certificates.Post().Resource("certificatesigningrequests").Param("fieldManager", FieldManager).Body(csr).Do(ctx).Into(created)
	return created.Name, err
}

// SigningRequest implements certrequest.API.
func (k *kube) SigningRequest(ctx context.Context, name string) (*certificatesv1.CertificateSigningRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	csr := &certificatesv1.CertificateSigningRequest{}
	err := k.certificates.Get().Resource("certificatesigningrequests").Name(name).Do(ctx).Into(csr)
	return csr, err
}

func (k *kube) ApplyStatus(ctx context.Context, name string, uid types.UID, status v1alpha1.RTNodeStatus) error {
	data, err := json.Marshal(&v1alpha1.RTNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RTNode"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}, Status: status,
	})
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return k.rt.Patch(types.ApplyPatchType).Resource("rtnodes").Name(name).SubResource("status").
		Param("fieldManager", FieldManager).Param("force", "true").Body(data).Do(ctx).Error()
}

func (k *kube) RenewLease(ctx context.Context, l *coordinationv1.Lease) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the Lease: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err = k.leases.Patch(types.MergePatchType).Namespace(l.Namespace).Resource("leases").Name(l.Name).Param("fieldManager", FieldManager).Body(data).Do(ctx).Error()
	if !apierrors.IsNotFound(err) {
		return err
	}
	return k.leases.Post().Namespace(l.Namespace).Resource("leases").Param("fieldManager", FieldManager).Body(l).Do(ctx).Error()
}

func (k *kube) PatchNode(ctx context.Context, name string, labels, annotations map[string]string) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding the patch of the node: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return k.core.Patch(types.MergePatchType).Resource("nodes").Name(name).Param("fieldManager", FieldManager).Body(data).Do(ctx).Error()
}

func (k *kube) CreateEvent(ctx context.Context, e *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return k.core.Post().Namespace(e.Namespace).Resource("events").Param("fieldManager", FieldManager).Body(e).Do(ctx).Error()
}

func (k *kube) CountEvent(ctx context.Context, e *corev1.Event) error {
	data, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp, "message": e.Message})
	if err != nil {
		return fmt.Errorf("encoding the patch of the event: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return k.core.Patch(types.MergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).
		Param("fieldManager", FieldManager).Body(data).Do(ctx).Error()
}
