package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// The paths of the webhooks, as in the chart's files/webhooks.yaml.
const (
	PathMutatePods      = "/mutate-pods"
	PathValidatePods    = "/validate-pods"
	PathValidateMcKubes = "/validate-mckubes"
)

// Handlers answer admission requests from what cluster knows, charging granularity microseconds to
// every budget.
type Handlers struct {
	Cluster     Cluster
	Granularity int64
	// Live reads from the API server itself; nil: what Cluster knows is all there is.
	Live client.Reader
	// Spared are the namespaces whose pods are never sent to the webhooks.
	Spared []string
	// Evictions is the gate of evictions; nil: they all pass.
	Evictions *Gate
	// Migrations reads PodMigrations, from a cache; nil: no pod waits for its place to be made.
	Migrations client.Reader
	// Workloads reads WorkloadOptimizers, from a cache; nil: no pod is given their placement.
	Workloads client.Reader
}

// Register serves the handlers.
func (h Handlers) Register(server webhook.Server) {
	for path, handle := range map[string]admission.HandlerFunc{
		PathMutatePods:      h.mutatePod,
		PathValidatePods:    h.validatePod,
		PathValidateMcKubes: h.validateMcKube,
	} {
		server.Register(path, &admission.Webhook{Handler: counted(path, h.whenSynced(handle)), RecoverPanic: ptr.To(true)})
	}
	for path, handle := range map[string]admission.HandlerFunc{
		PathValidateMigrationPolicies: validateMigrationPolicy,
		PathPlaceWorkloads:            h.placeWorkload,
		PathEvictions:                 h.Evictions.serve(),
	} {
		server.Register(path, &admission.Webhook{Handler: counted(path, handle), RecoverPanic: ptr.To(true)})
	}
}

// whenSynced has the caller come again while answers would be premature. The API server passes code
// and text on, and clients that know 503 try again.
func (h Handlers) whenSynced(handle admission.HandlerFunc) admission.HandlerFunc {
	return func(ctx context.Context, req admission.Request) admission.Response {
		if err := h.Cluster.Synced(); err != nil {
			return unavailable(err)
		}
		return handle(ctx, req)
	}
}

func (h Handlers) mutatePod(ctx context.Context, req admission.Request) admission.Response {
	pod, namespace, err := decodePod(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	mckubes, err := h.governing(ctx, pod)
	if err != nil {
		return unavailable(err)
	}
	in := Surroundings{McKubes: mckubes, Granularity: h.Granularity}
	if c, any := h.Cluster.Preempting(); any {
		in.Preempting = &c
	}
	in.Replacing = h.replacing(ctx, pod, ptr.Deref(req.DryRun, false))
	mutated, err := MutatePod(pod, in)
	if err != nil {
		return invalid(req, err)
	}
	mutated.Namespace = namespace
	data, err := json.Marshal(mutated)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encoding the pod: %w", err))
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, data)
}

func (h Handlers) validatePod(ctx context.Context, req admission.Request) admission.Response {
	pod, _, err := decodePod(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update {
		if err := ValidatePodUpdate(pod, h.Cluster.McKubesFor(pod)); err != nil {
			return invalid(req, err)
		}
		return admission.Allowed("")
	}
	mckubes, err := h.governing(ctx, pod)
	if err != nil {
		return unavailable(err)
	}
	warnings, err := ValidatePod(pod, mckubes)
	if err != nil {
		return invalid(req, err)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

func (h Handlers) validateMcKube(ctx context.Context, req admission.Request) admission.Response {
	m := &mcv1.McKube{}
	if err := json.Unmarshal(req.Object.Raw, m); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the McKube: %w", err))
	}
	m.Namespace = req.Namespace
	if slices.Contains(h.Spared, m.Namespace) {
		return invalid(req, spared(m.Namespace))
	}
	warnings, errs, err := ValidateMcKube(ctx, m, h.Cluster, h.Granularity)
	if err != nil {
		return unavailable(err)
	}
	if len(errs) > 0 {
		return invalid(req, errs.ToAggregate())
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// decodePod reads the pod, in the namespace that it is created in. The object need not say that; what it
// says is returned too, for it is not ours to change.
func decodePod(req admission.Request) (pod *corev1.Pod, namespace string, err error) {
	pod = &corev1.Pod{}
	if err := json.Unmarshal(req.Object.Raw, pod); err != nil {
		return nil, "", fmt.Errorf("decoding the pod: %w", err)
	}
	namespace, pod.Namespace = pod.Namespace, req.Namespace
	return pod, namespace, nil
}

// invalid is what the API server itself answers to an object that its validation refuses.
func invalid(req admission.Request, err error) admission.Response {
	name := req.Name
	if name == "" {
		partial := metav1.PartialObjectMetadata{}
		if json.Unmarshal(req.Object.Raw, &partial) == nil {
			name = partial.GenerateName + "*"
		}
	}
	return refused(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s %s/%s: %s", req.Kind.Kind, req.Namespace, name, err),
	}})
}

func unavailable(err error) admission.Response {
	return refused(apierrors.NewServiceUnavailable(fmt.Sprintf("Mainspring is not ready to admit real-time work, try again: %s", err)))
}

func refused(err *apierrors.StatusError) admission.Response {
	status := err.Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}
