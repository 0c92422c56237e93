package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// keeper is a Configurations over the chart's objects and more.
func keeper(t *testing.T, rotate bool, refuse error, more ...client.Object) (*webhooks.Configurations, *record.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	installed, err := charts.Webhooks("https://localhost:9443")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range installed.Mutating {
		more = append(more, c)
	}
	for _, c := range installed.Validating {
		more = append(more, c)
	}
	update := func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
		if _, secret := o.(*corev1.Secret); secret && refuse != nil {
			return refuse
		}
		return c.Update(ctx, o, options...)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(more...).WithInterceptorFuncs(interceptor.Funcs{Update: update}).Build()
	recorder := record.NewFakeRecorder(1000)
	return &webhooks.Configurations{
		Reader: c, Cache: c, Client: c, Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(start),
		Options: webhooks.Options{
			Namespace: systemNamespace, Secret: secretName, Rotate: rotate, Configurations: "mainspring",
			Authority: certs.Authority{DNSNames: []string{"localhost"}, Validity: 90 * 24 * time.Hour},
		},
	}, recorder
}

func emptySecret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: secretName, UID: "s"}, Data: data}
}

func bundleOf(t *testing.T, c *webhooks.Configurations) string {
	t.Helper()
	config := &admissionv1.MutatingWebhookConfiguration{}
	if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: "mainspring"}, config); err != nil {
		t.Fatal(err)
	}
	return string(config.Webhooks[0].ClientConfig.CABundle)
}

// cert-manager fills the Secret in its own time; we only read it.
func TestAForeignCertificateIsTakenAsItIs(t *testing.T) {
	c, _ := keeper(t, false, errors.New("nobody may write it"), emptySecret(nil))
	again, err := c.Reconcile(t.Context(), reconcile.Request{})
	if err != nil || again.RequeueAfter == 0 || bundleOf(t, c) != "" {
		t.Errorf("an empty Secret: %v, again in %s, bundle %q", err, again.RequeueAfter, bundleOf(t, c))
	}
	c, _ = keeper(t, false, errors.New("nobody may write it"), emptySecret(map[string][]byte{certs.KeyCA: []byte("authority")}))
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil || bundleOf(t, c) != "authority" {
		t.Errorf("a filled one: %v, bundle %q", err, bundleOf(t, c))
	}
	c, _ = keeper(t, false, nil)
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); !apierrors.IsNotFound(err) {
		t.Errorf("no Secret: %v", err)
	}
}

// Of two leaders in a hand-over the second writer fails and reads again; a bundle of a certificate that was not
// stored must not be announced.
func TestALostRaceForTheSecretChangesNothing(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, secretName, errors.New("modified"))
	c, _ := keeper(t, true, conflict, emptySecret(nil))
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); !apierrors.IsConflict(err) || bundleOf(t, c) != "" {
		t.Errorf("%v, bundle %q", err, bundleOf(t, c))
	}
}

// The chart's rights do not allow to create the Secret. What is served stays, what is not about the certificate goes on,
// and one Event tells the user who deleted it.
func TestADeletedSecretIsToldOnce(t *testing.T) {
	c, recorder := keeper(t, true, nil, emptySecret(nil))
	reconciled := func(what string, events int) string {
		t.Helper()
		if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(recorder.Events) != events {
			t.Fatalf("%s: %d events", what, len(recorder.Events))
		}
		return bundleOf(t, c)
	}
	bundle := reconciled("filled", 0)
	if err := c.Client.Delete(t.Context(), emptySecret(nil)); err != nil {
		t.Fatal(err)
	}
	all := c.Client
	c.Client = interceptor.NewClient(all.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, secretName, errors.New("no right"))
		},
	})
	if err := all.Create(t.Context(), mckube("m")); err != nil {
		t.Fatal(err)
	}
	if reconciled("deleted", 1) != bundle || reconciled("still deleted", 1) != bundle {
		t.Error("the bundle of the certificate that is still served was taken away")
	}
	governed := &admissionv1.MutatingWebhookConfiguration{}
	if err := all.Get(t.Context(), client.ObjectKey{Name: "mainspring-governed"}, governed); err != nil || len(governed.Webhooks) != 1 {
		t.Errorf("%v, %d entries of governed pods", err, len(governed.Webhooks))
	}
	if event := <-recorder.Events; !strings.Contains(event, "WebhookSecretMissing") || !strings.Contains(event, "kubectl create secret generic mainspring-webhook -n mainspring-system") {
		t.Error(event)
	}
	if err := all.Create(t.Context(), emptySecret(nil)); err != nil {
		t.Fatal(err)
	}
	if renewed := reconciled("back", 0); renewed == "" || renewed == bundle {
		t.Error("no new authority in the Secret that came back")
	}
}

func TestMissingConfigurationsAreNamed(t *testing.T) {
	for _, name := range []string{"mainspring", "mainspring-governed"} {
		c, _ := keeper(t, true, nil)
		gone := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Client.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err == nil || !strings.Contains(err.Error(), `"`+name+`" not found`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMcKubesWithoutAnEntryAreTold(t *testing.T) {
	var more []client.Object
	for i := range 201 {
		m := mckube(fmt.Sprintf("m%d", i), selecting("app", fmt.Sprint(i)))
		m.CreationTimestamp = metav1.Time{Time: start.Add(time.Duration(i) * time.Second)}
		more = append(more, m)
	}
	c, recorder := keeper(t, true, nil, more...)
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	if event := <-recorder.Events; !strings.Contains(event, "LabelNeeded") || !strings.Contains(event, "sdv.com") || len(recorder.Events) != 0 {
		t.Errorf("%s, and %d more", event, len(recorder.Events))
	}
}

// The leader that starts and the token's age replace the paths; nothing else does. What an upgrade wrote over them comes back.
func TestThePathsAreSecret(t *testing.T) {
	c, _ := keeper(t, true, nil, emptySecret(nil))
	clock := clocktesting.NewFakePassiveClock(start)
	c.Clock = clock
	reconciled := func() (paths []string) {
		t.Helper()
		if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
		if err := errors.Join(c.Reader.Get(t.Context(), client.ObjectKey{Name: "mainspring"}, mutating), c.Reader.Get(t.Context(), client.ObjectKey{Name: "mainspring"}, validating)); err != nil {
			t.Fatal(err)
		}
		for _, w := range mutating.Webhooks {
			paths = append(paths, strings.TrimPrefix(*w.ClientConfig.URL, "https://localhost:9443"))
		}
		for _, w := range validating.Webhooks {
			paths = append(paths, strings.TrimPrefix(*w.ClientConfig.URL, "https://localhost:9443"))
		}
		return paths
	}
	first := reconciled()
	ends := []string{webhooks.PathMutatePods, webhooks.PathPlaceWorkloads, webhooks.PathValidatePods, webhooks.PathValidateMcKubes, webhooks.PathValidateMigrationPolicies, webhooks.PathEvictions}
	for i, path := range first {
		if token := strings.TrimSuffix(path, ends[i]); len(token) != 65 || token != first[0][:65] {
			t.Errorf("webhook %d is at %s, want one token of 64 digits and %s", i, path, ends[i])
		}
	}
	clock.SetTime(start.Add(9 * time.Minute))
	if again := reconciled(); !slices.Equal(again, first) {
		t.Errorf("replaced too soon: %v", again)
	}
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: "mainspring"}, config); err != nil {
		t.Fatal(err)
	}
	config.Webhooks[0].ClientConfig.URL = new(string)
	*config.Webhooks[0].ClientConfig.URL = "https://localhost:9443"
	if err := c.Client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if again := reconciled(); !slices.Equal(again, first) {
		t.Errorf("written over by an upgrade: %v", again)
	}
	clock.SetTime(start.Add(10 * time.Minute))
	if next := reconciled(); next[0] == first[0] {
		t.Error("not replaced in time")
	}
	before := reconciled()
	restarted := *c
	c = &webhooks.Configurations{Reader: restarted.Reader, Cache: restarted.Cache, Client: restarted.Client, Recorder: restarted.Recorder, Clock: clock, Options: restarted.Options}
	if after := reconciled(); after[0] == before[0] {
		t.Error("calls may have failed while no controller ran, and have told the path; it is still in use")
	}
}

// A webhook of another version keeps its address; the others get theirs.
func TestAWebhookWithoutAHandlerIsNamed(t *testing.T) {
	c, _ := keeper(t, true, nil, emptySecret(nil))
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: "mainspring"}, config); err != nil {
		t.Fatal(err)
	}
	config.Webhooks[0].Name = "nodes.validate.mckube.io"
	if err := c.Client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err == nil || !strings.Contains(err.Error(), "nodes.validate.mckube.io") || bundleOf(t, c) == "" {
		t.Errorf("%v, bundle %q", err, bundleOf(t, c))
	}
}
