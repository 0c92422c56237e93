package webhooks_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// TestWebhooksOnAnAPIServer is one story, since a control plane is costly; each step stands on those
// before it.
func TestWebhooksOnAnAPIServer(t *testing.T) {
	s := newStage(t)
	t.Run("before they ever ran", s.blocksOnlyRealTimePods)
	s.start(t)
	t.Run("a labelled pod is given its core", s.mutatesLabelled)
	t.Run("McKubes of spared namespaces", s.sparesNamespaces)
	t.Run("a governed pod needs no label", s.mutatesGoverned)
	t.Run("what takes a migrated pod's place waits", s.gatesReplacements)
	t.Run("a dry run changes nothing", s.dryRunChangesNothing)
	t.Run("refusals and warnings reach the user", s.refusesAndWarns)
	t.Run("policies that cannot be used are refused", s.refusesPolicies)
	t.Run("evictions become migrations", s.migratesEvictions)
	t.Run("strangers are not answered", s.refusesStrangers)
	t.Run("certificates and paths are replaced", s.replacesCertificates)
	t.Run("entries go with their McKubes", s.removesEntries)
	s.stop()
	t.Run("while they are down", s.blocksOnlyRealTimePods)
	t.Run("work that runs goes on while they are down", s.leavesRunningWorkAlone)
	t.Run("evictions pass while they are down", s.letsEvictionsPass)
	s.start(t)
	t.Run("after a restart", s.mutatesLabelledAgain)
}

func (s *stage) mutatesLabelled(t *testing.T) {
	s.mustCreate(t, mckube("m", podname("cam"), onCores("2-3")))
	s.soon(t, func() error {
		got, err := s.try(t, labelled(pod("app"), "sdv.com", "x"), "cam")
		if err == nil && len(got.Spec.ResourceClaims) != 1 {
			err = fmt.Errorf("claims %v", got.Spec.ResourceClaims)
		}
		return err
	})
	got := labelled(pod("app"), "sdv.com", "x")
	got.Name = "cam"
	s.mustCreate(t, got)
	if got.Annotations[mcv1.AnnotationCore] != "2-3" || got.Annotations[mcv1.AnnotationPending] != "true" ||
		!strings.HasPrefix(*got.Spec.ResourceClaims[0].ResourceClaimTemplateName, "m-rt-") || got.Spec.Containers[0].Resources.Claims[0].Name != "rt-app" {
		t.Errorf("%+v", got)
	}
	plain := pod("app")
	plain.Name = "plain"
	s.mustCreate(t, plain)
	if len(plain.Annotations) > 0 || len(plain.Labels) > 0 {
		t.Errorf("an ordinary pod is changed: %+v", plain.ObjectMeta)
	}
}

func (s *stage) mutatesLabelledAgain(t *testing.T) {
	s.soon(t, func() error {
		got, err := s.try(t, labelled(pod("app"), "sdv.com", "x", "app", "web"), "web-x")
		if err == nil && len(got.Spec.ResourceClaims) != 1 {
			err = fmt.Errorf("claims %v", got.Spec.ResourceClaims)
		}
		return err
	})
}

// sparesNamespaces: a McKube where no pod is sent to us could keep no promise.
func (s *stage) sparesNamespaces(t *testing.T) {
	for _, namespace := range []string{"kube-system", systemNamespace} {
		m := mckube("spared", podname("spared"), in(namespace))
		if err := s.client.Create(t.Context(), m, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `namespace "`+namespace+`"`) {
			t.Errorf("%s: %v", namespace, err)
		}
	}
}

func (s *stage) mutatesGoverned(t *testing.T) {
	s.mustCreate(t, mckube("by-name", podname("nameless")), mckube("by-label", selecting("app", "web")))
	for name, labels := range map[string][]string{"nameless": nil, "web-1": {"app", "web"}} {
		s.soon(t, func() error {
			got, err := s.try(t, labelled(pod("app"), labels...), name)
			if err == nil && (len(got.Spec.ResourceClaims) != 1 || got.Labels[mcv1.LabelRT] == "") {
				err = fmt.Errorf("%s is not mutated: %+v", name, got.ObjectMeta)
			}
			return err
		})
	}
	generated := pod("app")
	generated.GenerateName = "nameless-"
	if got, err := s.try(t, generated, ""); err != nil || len(got.Spec.ResourceClaims) != 0 {
		t.Errorf("a pod whose name is made up: %v, %+v", err, got.Spec.ResourceClaims)
	}
}

// gatesReplacements: what the owner of a migrated pod makes is sent to us, without label or McKube, for as long as the migration goes on; what others make is not.
func (s *stage) gatesReplacements(t *testing.T) {
	move := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "move"}, Spec: v1alpha1.PodMigrationSpec{PodName: "db-0"}}
	s.mustCreate(t, move)
	under := func(phase v1alpha1.MigrationPhase) {
		t.Helper()
		before := move.DeepCopy()
		move.Status.Phase, move.Status.Strategy = phase, v1alpha1.StrategyRestart
		move.Status.Owner = &v1alpha1.MigrationOwner{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "8f0f7a2e-db"}
		move.Status.Source = &v1alpha1.MigrationEnd{PodName: "db-0", PodUID: "source", Node: "a"}
		if err := s.client.Status().Patch(t.Context(), move, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	// by returns whether a pod of the owner is gated; one that is in the place of replaces asks before it is so.
	by := func(owner types.UID, name, replaces string) (bool, error) {
		p := pod("app")
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: owner, Controller: ptr.To(true)}}
		if replaces != "" {
			annotated(p, mcv1.AnnotationReplaces, replaces)
		}
		got, err := s.try(t, p, name)
		return err == nil && slices.Contains(got.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.GateMigration}), err
	}
	expect := func(what string, owner types.UID, name, replaces string, want bool) {
		t.Helper()
		s.soon(t, func() error {
			if is, err := by(owner, name, replaces); err != nil || is != want {
				return fmt.Errorf("%s: gated %t, want %t: %w", what, is, want, err)
			}
			return nil
		})
	}
	under(v1alpha1.MigrationReserving)
	expect("a question before the eviction", "8f0f7a2e-db", "probe", "source", true)
	expect("a pod before the eviction", "8f0f7a2e-db", "db-0", "", false)
	under(v1alpha1.MigrationCuttingOver)
	expect("the pod in its place", "8f0f7a2e-db", "db-0", "", true)
	expect("another owner's pod", "other", "db-0", "", false)
	expect("another pod of the owner", "8f0f7a2e-db", "db-1", "", false)
	under(v1alpha1.MigrationSucceeded)
	expect("a pod after it", "8f0f7a2e-db", "db-0", "", false)
	expect("a question after it", "8f0f7a2e-db", "probe", "source", false)
	if err := s.client.Delete(t.Context(), move); err != nil {
		t.Fatal(err)
	}
}

// dryRunChangesNothing compares all that a webhook could have written.
func (s *stage) dryRunChangesNothing(t *testing.T) {
	versions := func() string {
		var all []string
		for _, list := range []client.ObjectList{
			&corev1.PodList{}, &mcv1.McKubeList{}, &corev1.EventList{}, &corev1.SecretList{}, &resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{},
		} {
			if err := s.client.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			data, err := yaml.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.SplitSeq(string(data), "\n") {
				if strings.HasPrefix(line, "    resourceVersion:") || strings.HasPrefix(line, "    name:") {
					all = append(all, strings.TrimSpace(line))
				}
			}
		}
		return strings.Join(all, "\n")
	}
	before := versions()
	if _, err := s.try(t, labelled(pod("app"), "sdv.com", "x", "app", "web"), "dry"); err != nil {
		t.Error(err)
	}
	if err := s.client.Create(t.Context(), mckube("dry", podname("dry")), client.DryRunAll); err != nil {
		t.Error(err)
	}
	if after := versions(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func (s *stage) refusesAndWarns(t *testing.T) {
	for want, m := range map[string]*mcv1.McKube{
		"McKube m governs the same pods already":                  mckube("second", podname("cam")),
		"must list each core once":                                mckube("third", podname("x"), onCores("1,1")),
		"spec.rtSettings.runtime_low: Invalid value: 50: must be": mckube("fourth", podname("x"), budget(1_000, 50, 60)),
	} {
		err := s.client.Create(t.Context(), m)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	s.mustCreate(t, mckube("low", podname("low"), critical("Low")))
	if !strings.Contains(s.warnings.all(), "because the criticality is Low") {
		t.Errorf("warnings: %s", s.warnings.all())
	}
	_, err := s.try(t, annotated(labelled(pod("app"), "sdv.com", "x", "app", "web"), mcv1.AnnotationPeriod, "77"), "web-2")
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `metadata.annotations[mckube.io/rt-period] is "77"; McKube by-label says "10000"`) {
		t.Errorf("contradiction: %v", err)
	}
	if _, err := s.try(t, labelled(pod("app", "log"), "app", "web"), "web-3"); err == nil || !strings.Contains(err.Error(), "it must name one of app, log") {
		t.Errorf("which container: %v", err)
	}
	// Settings of a pod that runs are held against its McKube too, whatever else may change.
	cam := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"}}
	patch := func(text string) error {
		return s.client.Patch(t.Context(), cam, client.RawPatch("application/merge-patch+json", []byte(text)))
	}
	if err := patch(`{"metadata":{"annotations":{"mckube.io/rt-runtime-hi":"9000"}}}`); err == nil || !strings.Contains(err.Error(), "mckube.io/rt-runtime-hi") {
		t.Errorf("a changed setting: %v", err)
	}
	if err := patch(`{"metadata":{"annotations":{"mckube.io/rt-current":"hi"}}}`); err != nil {
		t.Errorf("a changed state: %v", err)
	}
}

// refusesStrangers: who does not know the path is neither answered nor obeyed.
func (s *stage) refusesStrangers(t *testing.T) {
	known := s.path(t, "evictions.migrate.mckube.io")
	for _, path := range []string{
		webhooks.PathEvictions, webhooks.PathMutatePods, webhooks.PathValidatePods, "/", "//evictions", "/" + strings.Repeat("0", 64) + webhooks.PathEvictions,
		known[:len(known)-1], known + "/", strings.ToUpper(known), "/x" + known,
	} {
		if code := s.post(t, path); code != http.StatusNotFound {
			t.Errorf("POST %s: %d", path, code)
		}
	}
	if code := s.post(t, known); code != http.StatusOK {
		t.Errorf("the API server's own path: %d", code)
	}
}

// path is where the API server calls the validating webhook.
func (s *stage) path(t *testing.T, webhook string) string {
	t.Helper()
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: "mainspring"}, config); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(config.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return w.Name == webhook })
	return strings.TrimPrefix(*config.Webhooks[at].ClientConfig.URL, fmt.Sprintf("https://localhost:%d", s.port))
}

// post sends a review that asks nothing, as any client on the network could, and returns the status code.
func (s *stage) post(t *testing.T, path string) int {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.secret(t).Data[certs.KeyCA])
	browser := &http.Client{Timeout: eventually, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"UPDATE","object":{},"oldObject":{}}}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("https://localhost:%d%s", s.port, path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func (s *stage) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: secretName}, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// replacesCertificates lets most of an hour pass for our clock; the API server's shows the same hour.
func (s *stage) replacesCertificates(t *testing.T) {
	first, path := s.secret(t), s.path(t, "pods.validate.mckube.io")
	s.clock.Step(45 * time.Minute)
	s.mustCreate(t, mckube("wakes-it", podname("nobody"))) // the clock of the queue is not ours
	s.soon(t, func() error {
		if bytes.Equal(s.secret(t).Data[certs.KeyCert], first.Data[certs.KeyCert]) {
			return fmt.Errorf("the certificate is the old one")
		}
		return nil
	})
	if !bytes.Equal(s.secret(t).Data[certs.KeyCA], first.Data[certs.KeyCA]) {
		t.Error("the authority is replaced with every certificate")
	}
	s.soon(t, func() error { _, err := s.try(t, labelled(pod("app"), "sdv.com", ""), "renewed"); return err })
	if next := s.path(t, "pods.validate.mckube.io"); next == path {
		t.Error("the path that a failed call may have disclosed is still in use")
	}
	if code := s.post(t, path); code != http.StatusOK {
		t.Errorf("an API server that has not seen the new path yet: %d", code)
	}
	s.clock.Step(2 * time.Minute)
	if code := s.post(t, path); code != http.StatusNotFound {
		t.Errorf("the old path: %d", code)
	}

	broken := s.secret(t)
	broken.Data = nil
	if err := s.client.Update(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	s.soon(t, func() error {
		if len(s.secret(t).Data[certs.KeyCert]) == 0 {
			return fmt.Errorf("the Secret is still empty")
		}
		_, err := s.try(t, labelled(pod("app"), "sdv.com", ""), "repaired")
		return err
	})
}

func (s *stage) removesEntries(t *testing.T) {
	gone := mckube("by-name", podname("nameless"))
	if err := s.client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	s.soon(t, func() error {
		got, err := s.try(t, pod("app"), "nameless")
		if err == nil && len(got.Annotations) > 0 {
			err = fmt.Errorf("still mutated: %v", got.Annotations)
		}
		return err
	})
}

// blocksOnlyRealTimePods: nothing answers. Pods that are not ours are created at once, and so are those
// of the namespaces that must start first; a real-time pod is refused, and told what is missing.
func (s *stage) blocksOnlyRealTimePods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	for i := range 20 {
		p := pod("app")
		p.Name = fmt.Sprintf("ordinary-%d", i)
		if err := s.client.Create(ctx, p, client.DryRunAll); err != nil {
			t.Fatalf("an ordinary pod: %v", err)
		}
	}
	system := labelled(pod("app"), "sdv.com", "x")
	system.Namespace = "kube-system"
	if _, err := s.try(t, system, "system"); err != nil {
		t.Errorf("a pod of kube-system: %v", err)
	}
	if _, err := s.try(t, labelled(pod("app"), "sdv.com", "x"), "refused"); err == nil || !strings.Contains(err.Error(), `failed calling webhook "pods.mutate.mckube.io"`) {
		t.Errorf("a real-time pod: %v", err)
	}
	if err := s.client.Create(ctx, mckube("refused", podname("refused"))); err == nil || !strings.Contains(err.Error(), "mckubes.validate.mckube.io") {
		t.Errorf("a McKube: %v", err)
	}
}

// leavesRunningWorkAlone: labels, finalizers and states of pods and McKubes change, and McKubes go.
func (s *stage) leavesRunningWorkAlone(t *testing.T) {
	governed := labelled(pod("app"), "app", "web")
	if _, err := s.try(t, governed, "web-4"); err == nil || !strings.Contains(err.Error(), ".governed.mckube.io") {
		t.Errorf("a governed pod without label: %v", err)
	}
	patch := []byte(`{"metadata":{"labels":{"x":"y"},"annotations":{"mckube.io/rt-configured":"true"},"finalizers":["example.com/x"]}}`)
	for _, o := range []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"}},
		&mcv1.McKube{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}},
	} {
		if err := s.client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Errorf("changing %T: %v", o, err)
		}
		if err := s.client.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
			t.Errorf("deleting %T: %v", o, err)
		}
		if err := s.client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Errorf("letting %T go: %v", o, err)
		}
	}
	if list := (&mcv1.McKubeList{}); s.client.List(t.Context(), list) != nil || slices.ContainsFunc(list.Items, func(m mcv1.McKube) bool { return m.Name == "m" }) {
		t.Error("the McKube is still there")
	}
}
