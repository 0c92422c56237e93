package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	admissionapi "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// The executor's own evictions pass, if it is itself that says so.
func TestOnlyTheControllersOwnEvictionsPass(t *testing.T) {
	says := func(annotation, user string) func(*admissionapi.AdmissionRequest, *policyv1.Eviction) {
		return func(r *admissionapi.AdmissionRequest, e *policyv1.Eviction) {
			r.UserInfo.Username = user
			if annotation != "" {
				e.Annotations = map[string]string{annotation: "default/x"}
			}
		}
	}
	expectPasses(t, newGate(t).evict(t, says(v1alpha1.AnnotationMigration, controllerUser)), "")
	expectPasses(t, newGate(t).evict(t, says(v1alpha1.AnnotationAction, controllerUser)), "")
	expectLater(t, newGate(t).evict(t, says(v1alpha1.AnnotationMigration, evictor)))
	expectLater(t, newGate(t).evict(t, says("", controllerUser))) // Karpenter's, in the same process
	expectLater(t, newGate(t).evict(t, says("mckube.io/other", controllerUser)))
	g := newGate(t)
	g.Self = func(context.Context) (string, error) { return "", errors.New("no answer") }
	expectLater(t, g.evict(t, says(v1alpha1.AnnotationMigration, "")))
}

func TestWhenSomethingIsMissingEvictionsPass(t *testing.T) {
	g := newGate(t)
	g.synced = errLists
	expectPasses(t, g.evict(t), "")
	broken := errors.New("etcd is away")
	for warning, f := range map[string]interceptor.Funcs{
		"reading PodMigrations: etcd is away": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken }},
		"creating a PodMigration: etcd is away": {Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return broken
		}},
		"creating a PodMigration: namespaces": {Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), "default")
		}},
	} {
		g := newGate(t)
		g.Client = interceptor.NewClient(g.api, f)
		expectPasses(t, g.evict(t), warning)
	}
	g = newGate(t)
	expectPasses(t, g.evict(t, func(r *admissionapi.AdmissionRequest, _ *policyv1.Eviction) { r.Object.Raw = []byte(`{"metadata":7}`) }), "")
	(*g).Gate = nil
	expectPasses(t, g.evict(t), "")
}

func TestWhoWeAreIsAskedUntilItIsKnown(t *testing.T) {
	asked := 0
	scheme := runtime.NewScheme()
	if err := authenticationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	self := webhooks.Self(interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if asked++; asked == 1 {
				return errors.New("not yet")
			}
			o.(*authenticationv1.SelfSubjectReview).Status.UserInfo.Username = controllerUser
			return nil
		},
	}))
	if _, err := self(t.Context()); err == nil {
		t.Error("no error")
	}
	for range 3 {
		if name, err := self(t.Context()); err != nil || name != controllerUser {
			t.Errorf("%q, %v", name, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// Whatever is sent as an eviction: it passes, or is put off.
func FuzzEvictions(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"app","annotations":{"mckube.io/migration":"x"}},"deleteOptions":{"preconditions":{"uid":"u1"},"dryRun":["All"]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			t.Skip("no JSON: the API server sends none")
		}
		r := newGate(t).evict(t, func(r *admissionapi.AdmissionRequest, _ *policyv1.Eviction) { r.Object.Raw = raw })
		if !r.Allowed && r.Result.Code != http.StatusTooManyRequests {
			t.Errorf("%+v", r.Result)
		}
	})
}
