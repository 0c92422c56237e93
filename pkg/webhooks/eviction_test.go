package webhooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionapi "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

const (
	controllerUser = "system:serviceaccount:mainspring-system:mainspring"
	evictor        = "system:serviceaccount:default:drainer"
)

var evening = time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)

// gate is one over a pod default/app that runs with a McKube, and what it has written.
type gate struct {
	*webhooks.Gate
	api    client.WithWatch
	clock  *clocktesting.FakePassiveClock
	pod    *state.PodView
	synced error
}

func newGate(t *testing.T, objects ...client.Object) *gate {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	g := &gate{
		api: interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				o.SetCreationTimestamp(metav1.Time{Time: evening})
				return c.Create(ctx, o, options...)
			},
		}),
		clock: clocktesting.NewFakePassiveClock(evening),
		pod: &state.PodView{
			UID: "u1", Namespace: "default", Name: "app", NodeName: "n1", Phase: corev1.PodRunning, Owned: true,
			Governed: []state.Governed{{Container: "app", McKube: mckube("m")}},
		},
	}
	g.Gate = &webhooks.Gate{
		Synced: func() error { return g.synced },
		Pod: func(namespace, name string) (*state.PodView, bool) {
			return g.pod, g.pod != nil && namespace == g.pod.Namespace && name == g.pod.Name
		},
		Client: g.api, Live: g.api, Clock: g.clock, Deadline: 10 * time.Minute,
		Self: func(context.Context) (string, error) { return controllerUser, nil },
	}
	return g
}

// evict sends the eviction as an API server would.
func (g *gate) evict(t *testing.T, change ...func(*admissionapi.AdmissionRequest, *policyv1.Eviction)) *admissionapi.AdmissionResponse {
	t.Helper()
	eviction := &policyv1.Eviction{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
	}
	req := &admissionapi.AdmissionRequest{
		UID: "r", Kind: metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, Namespace: "default", Name: "app",
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, SubResource: "eviction",
		Operation: admissionapi.Create, DryRun: ptr.To(false), UserInfo: authenticationv1.UserInfo{Username: evictor},
	}
	for _, c := range change {
		c(req, eviction)
	}
	if req.Object.Raw == nil {
		raw, err := json.Marshal(eviction)
		if err != nil {
			t.Fatal(err)
		}
		req.Object.Raw = raw
	}
	server := webhook.NewServer(webhook.Options{})
	webhooks.Handlers{Cluster: &world{unsynced: errLists}, Evictions: g.Gate}.Register(server)
	body, err := json.Marshal(admissionapi.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	http1 := httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhooks.PathEvictions, bytes.NewReader(body))
	http1.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	server.WebhookMux().ServeHTTP(recorder, http1)
	answer := admissionapi.AdmissionReview{}
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, recorder.Body)
	}
	return answer.Response
}

func (g *gate) migrations(t *testing.T) []v1alpha1.PodMigration {
	t.Helper()
	list := &v1alpha1.PodMigrationList{}
	if err := g.api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func expectLater(t *testing.T, r *admissionapi.AdmissionResponse, says ...string) {
	t.Helper()
	if r.Allowed || r.Result.Code != http.StatusTooManyRequests || r.Result.Reason != metav1.StatusReasonTooManyRequests ||
		r.Result.Details == nil || r.Result.Details.RetryAfterSeconds != 2 {
		t.Fatalf("%+v, %+v", r, r.Result)
	}
	for _, s := range says {
		if !strings.Contains(r.Result.Message, s) {
			t.Errorf("%q lacks %q", r.Result.Message, s)
		}
	}
}

func expectPasses(t *testing.T, r *admissionapi.AdmissionResponse, warning string) {
	t.Helper()
	if !r.Allowed || (warning == "") != (len(r.Warnings) == 0) || warning != "" && !strings.Contains(r.Warnings[0], warning) {
		t.Errorf("%+v, want to pass with warning %q", r, warning)
	}
}

// The eviction of a pod that may migrate becomes one PodMigration, however often it is asked for, and is put off.
func TestAnEvictionBecomesAMigration(t *testing.T) {
	g := newGate(t)
	for range 3 {
		expectLater(t, g.evict(t), "pod default/app is being migrated", "PodMigration eviction-u1 (Pending)")
	}
	all := g.migrations(t)
	if len(all) != 1 {
		t.Fatalf("%d migrations", len(all))
	}
	o := all[0]
	if o.Name != "eviction-u1" || o.Namespace != "default" || o.Spec.PodName != "app" || o.Spec.PodUID != "u1" || o.Spec.Trigger != v1alpha1.TriggerEviction ||
		*o.Spec.TTLSecondsAfterFinished != 300 || o.Spec.Reason != evictor+" asked for its eviction from node n1" || o.Spec.DryRun || o.Spec.Abort {
		t.Errorf("%+v", o.Spec)
	}
	if !slices.Equal(o.Finalizers, []string{v1alpha1.FinalizerMigration}) {
		t.Errorf("finalizers %v: the controller must write it once more", o.Finalizers)
	}
	o.Status.Phase = v1alpha1.MigrationRestoring
	if err := g.api.Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	expectLater(t, g.evict(t), "(Restoring)")
}

// While the cache does not show the PodMigration it is there all the same.
func TestAMigrationThatTheCacheDoesNotShow(t *testing.T) {
	g := newGate(t)
	expectLater(t, g.evict(t))
	g.Client = interceptor.NewClient(g.api, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil }})
	expectLater(t, g.evict(t), "from 2026-11-21T20:10:00Z on")
	if n := len(g.migrations(t)); n != 1 {
		t.Errorf("%d migrations", n)
	}
}

func migrationOf(name string, pod types.UID, phase v1alpha1.MigrationPhase, change ...func(*v1alpha1.PodMigration)) *v1alpha1.PodMigration {
	o := &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.Time{Time: evening}},
		Spec:       v1alpha1.PodMigrationSpec{PodName: "app"},
		Status:     v1alpha1.PodMigrationStatus{Phase: phase, Source: &v1alpha1.MigrationEnd{PodUID: pod}, Message: "as it is"},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func TestAnEvictionWaitsForAnyMigrationOfItsPod(t *testing.T) {
	g := newGate(t, migrationOf("by-hand", "u1", v1alpha1.MigrationReserving), migrationOf("of-another", "u2", v1alpha1.MigrationReserving), migrationOf("eviction-u1", "u1", v1alpha1.MigrationFailed))
	expectLater(t, g.evict(t), "PodMigration by-hand (Reserving)")
	if n := len(g.migrations(t)); n != 3 {
		t.Errorf("%d migrations", n)
	}
}

// When the migration is over, whatever came of it, the evictor has waited long enough.
func TestAnEvictionPassesWhenItsMigrationIsOver(t *testing.T) {
	for _, phase := range []v1alpha1.MigrationPhase{
		v1alpha1.MigrationSucceeded, v1alpha1.MigrationSucceededWithoutState, v1alpha1.MigrationFailed, v1alpha1.MigrationRolledBack, v1alpha1.MigrationAborted, v1alpha1.MigrationRefused,
	} {
		g := newGate(t, migrationOf("eviction-u1", "u1", phase))
		expectPasses(t, g.evict(t), "PodMigration default/eviction-u1 is over ("+string(phase)+"): as it is")
	}
	g := newGate(t, migrationOf("by-hand", "u1", v1alpha1.MigrationRolledBack)) // that was not for an eviction
	expectLater(t, g.evict(t), "eviction-u1")
	g = newGate(t, migrationOf("thought", "u1", v1alpha1.MigrationPending, func(o *v1alpha1.PodMigration) { o.Spec.DryRun = true }))
	expectLater(t, g.evict(t), "eviction-u1")
}

// The deadline counts from when the migration has begun.
func TestADeadlineCountsFromTheBeginning(t *testing.T) {
	begun := metav1.NewMicroTime(evening.Add(9 * time.Minute))
	g := newGate(t, migrationOf("eviction-u1", "u1", v1alpha1.MigrationVerifying, func(o *v1alpha1.PodMigration) { o.Status.StartTime = &begun }))
	g.clock.SetTime(evening.Add(10 * time.Minute))
	expectLater(t, g.evict(t), "from 2026-11-21T20:19:00Z on")
	g.clock.SetTime(evening.Add(19 * time.Minute))
	expectPasses(t, g.evict(t), "has not ended within 10m0s")
}

// Whose eviction is a node's drain says so: Karpenter's, which is ours, and that of a pod whose node takes no others.
func TestWhyAPodIsToGo(t *testing.T) {
	for _, c := range []struct {
		user   string
		closed bool
		want   v1alpha1.MigrationTrigger
	}{
		{evictor, false, v1alpha1.TriggerEviction}, {evictor, true, v1alpha1.TriggerDrain}, {controllerUser, false, v1alpha1.TriggerDrain},
	} {
		g := newGate(t)
		g.Closed = func(node string) bool { return c.closed && node == "n1" }
		expectLater(t, g.evict(t, func(r *admissionapi.AdmissionRequest, _ *policyv1.Eviction) { r.UserInfo.Username = c.user }))
		if o := g.migrations(t)[0]; o.Spec.Trigger != c.want || o.Spec.WaitTimeout.Duration != g.Deadline {
			t.Errorf("%s, node closed %t: %+v", c.user, c.closed, o.Spec)
		}
	}
}

func TestAnEvictionPassesAfterItsDeadline(t *testing.T) {
	g := newGate(t, migrationOf("eviction-u1", "u1", v1alpha1.MigrationPending))
	g.clock.SetTime(evening.Add(10*time.Minute - 1))
	expectLater(t, g.evict(t), "from 2026-11-21T20:10:00Z on it may be evicted")
	g.clock.SetTime(evening.Add(10 * time.Minute))
	expectPasses(t, g.evict(t), "has not ended within 10m0s")
	g = newGate(t)
	g.Deadline = 0
	expectPasses(t, g.evict(t), "")
	if n := len(g.migrations(t)); n != 0 {
		t.Errorf("%d migrations while the gate is off", n)
	}
}

// kubectl drain --dry-run=server says so in the options of the deletion, others in those of the request.
func TestADryRunHasNoSideEffect(t *testing.T) {
	for name, change := range map[string]func(*admissionapi.AdmissionRequest, *policyv1.Eviction){
		"of the request": func(r *admissionapi.AdmissionRequest, _ *policyv1.Eviction) { r.DryRun = ptr.To(true) },
		"of the deletion": func(_ *admissionapi.AdmissionRequest, e *policyv1.Eviction) {
			e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		},
	} {
		g := newGate(t)
		expectPasses(t, g.evict(t, change), "would be migrated")
		if n := len(g.migrations(t)); n != 0 {
			t.Errorf("%s: %d migrations", name, n)
		}
	}
}

// onlyLists is a cache of which nothing but lists is asked, and by which nothing is written.
type onlyLists struct {
	client.Client
	*testing.T
}

func (c onlyLists) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	c.Errorf("%s is read", key)
	return errLists
}

func (c onlyLists) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	c.Errorf("%s is created", o.GetName())
	return errLists
}

// Evictions of other pods pass at once, without a word and without a question to the API server: whether they stand still its cache says.
func TestOtherPodsPass(t *testing.T) {
	migration := func(kind mcv1.MigrationKind) func(*state.PodView) {
		return func(p *state.PodView) { p.Governed[0].McKube.Spec.Migration = &mcv1.Migration{Policy: kind} }
	}
	for name, c := range map[string]struct {
		change func(*state.PodView)
		passes bool
	}{
		"as it is":               {func(*state.PodView) {}, false},
		"no McKube":              {func(p *state.PodView) { p.Governed = nil }, true},
		"it may never":           {migration(mcv1.MigrationNever), true},
		"it may restart":         {migration(mcv1.MigrationRestart), false},
		"nobody makes it again":  {func(p *state.PodView) { p.Owned = false }, true},
		"it restarts, ownerless": {func(p *state.PodView) { migration(mcv1.MigrationRestart)(p); p.Owned = false }, true},
		"with its state":         {func(p *state.PodView) { migration(mcv1.MigrationCheckpoint)(p); p.Owned = false }, false},
		"it has no node":         {func(p *state.PodView) { p.NodeName = "" }, true},
		"it does not run yet":    {func(p *state.PodView) { p.Phase = corev1.PodPending }, true},
		"it has finished":        {func(p *state.PodView) { p.Phase = corev1.PodSucceeded }, true},
		"it is going":            {func(p *state.PodView) { p.Deleting = true }, true},
		"another name":           {func(p *state.PodView) { p.Name = "other" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			c.change(g.pod)
			if c.passes {
				g.Client = onlyLists{g.api, t}
				expectPasses(t, g.evict(t), "")
				return
			}
			expectLater(t, g.evict(t))
		})
	}
	uid := func(uid types.UID) func(*admissionapi.AdmissionRequest, *policyv1.Eviction) {
		return func(_ *admissionapi.AdmissionRequest, e *policyv1.Eviction) {
			e.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		}
	}
	expectPasses(t, newGate(t).evict(t, uid("an-earlier-one")), "")
	expectLater(t, newGate(t).evict(t, uid("u1")))
}
