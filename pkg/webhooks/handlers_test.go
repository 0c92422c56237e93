package webhooks_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionapi "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// ask sends the request as an API server would.
func ask(t testing.TB, w *world, path, kind string, object any) *admissionapi.AdmissionResponse {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, w, path, kind, raw)
}

func send(t testing.TB, w *world, path, kind string, raw []byte) *admissionapi.AdmissionResponse {
	t.Helper()
	return sendTo(t, webhooks.Handlers{Cluster: w, Granularity: granularity, Live: w.live, Spared: w.spared, Migrations: w.migrations}, path, kind, raw)
}

// sendTo sends a review of a creation to the handlers.
func sendTo(t testing.TB, handlers webhooks.Handlers, path, kind string, raw []byte) *admissionapi.AdmissionResponse {
	t.Helper()
	server := webhook.NewServer(webhook.Options{})
	handlers.Register(server)
	review := admissionapi.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionapi.AdmissionRequest{
			UID: "u", Kind: metav1.GroupVersionKind{Kind: kind}, Namespace: "default", Name: "app",
			Operation: admissionapi.Create, Object: runtime.RawExtension{Raw: raw}, DryRun: ptr.To(true),
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	server.WebhookMux().ServeHTTP(recorder, req)
	answer := admissionapi.AdmissionReview{}
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, recorder.Body)
	}
	return answer.Response
}

// patched is the pod after the answer's patch.
func patched(t *testing.T, raw []byte, r *admissionapi.AdmissionResponse) *corev1.Pod {
	t.Helper()
	if !r.Allowed {
		t.Fatalf("refused: %+v", r.Result)
	}
	patch, err := jsonpatch.DecodePatch(r.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(raw)
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{}
	if err := json.Unmarshal(after, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// The object of a request need not say its namespace.
func TestTheMutatingWebhookUsesTheNamespaceOfTheRequest(t *testing.T) {
	p := labelled(pod("app"), "sdv.com", "x")
	p.Namespace = ""
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	got := patched(t, raw, send(t, &world{mckubes: []*mcv1.McKube{mckube("m")}}, webhooks.PathMutatePods, "Pod", raw))
	if got.Namespace != "" || len(got.Spec.ResourceClaims) != 1 || got.Annotations[mcv1.AnnotationPeriod] != "10000" {
		t.Errorf("%+v", got)
	}
}

func TestLessCriticalPodsYieldToAPreemption(t *testing.T) {
	for c, want := range map[mcv1.Criticality]bool{"Low": true, "middle": false, "High": false} {
		w := &world{mckubes: []*mcv1.McKube{mckube("m", critical(c))}, preempting: ptr.To(rt.Middle)}
		raw, err := json.Marshal(pod("app"))
		if err != nil {
			t.Fatal(err)
		}
		got := patched(t, raw, send(t, w, webhooks.PathMutatePods, "Pod", raw))
		if gated := len(got.Spec.SchedulingGates) == 1; gated != want {
			t.Errorf("%s beside a preemption for Middle: gates %v", c, got.Spec.SchedulingGates)
		}
	}
}

// An incomplete cache does not know all McKubes: an answer would let a pod run without its claim.
func TestAnIncompleteCacheAsksToTryAgain(t *testing.T) {
	w := &world{unsynced: errLists}
	for path, object := range map[string]any{
		webhooks.PathMutatePods: pod("app"), webhooks.PathValidatePods: pod("app"), webhooks.PathValidateMcKubes: mckube("m"),
	} {
		r := ask(t, w, path, "Pod", object)
		if r.Allowed || r.Result.Code != http.StatusServiceUnavailable || !strings.Contains(r.Result.Message, "try again: pods have not been listed") {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

func TestRefusalsNameTheObject(t *testing.T) {
	w := &world{mckubes: []*mcv1.McKube{mckube("a"), mckube("b")}}
	for path, object := range map[string]any{
		webhooks.PathMutatePods: pod("app"), webhooks.PathValidatePods: pod("app"), webhooks.PathValidateMcKubes: mckube("m"),
	} {
		r := ask(t, w, path, "Thing", object)
		if r.Allowed || r.Result.Code != http.StatusUnprocessableEntity || !strings.HasPrefix(r.Result.Message, "Thing default/app: ") {
			t.Errorf("%s: %+v", path, r.Result)
		}
	}
}

func TestAdviceComesAsWarnings(t *testing.T) {
	r := ask(t, &world{}, webhooks.PathValidateMcKubes, "McKube", mckube("m", critical("Low")))
	if !r.Allowed || len(r.Warnings) != 1 {
		t.Errorf("McKube: %+v", r)
	}
	r = ask(t, &world{}, webhooks.PathValidatePods, "Pod", annotated(pod("app"), mcv1.AnnotationPeriod, "1000"))
	if !r.Allowed || len(r.Warnings) != 1 {
		t.Errorf("pod: %+v", r)
	}
}

func TestNonsenseIsABadRequest(t *testing.T) {
	for _, path := range []string{webhooks.PathMutatePods, webhooks.PathValidatePods, webhooks.PathValidateMcKubes} {
		if r := send(t, &world{}, path, "Pod", []byte(`{"metadata": 3, "spec": 4}`)); r.Allowed || r.Result.Code != http.StatusBadRequest {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

// Whatever is sent, the answer is an answer.
func FuzzHandlers(f *testing.F) {
	for _, object := range []any{pod("app", "log"), mckube("m", onCores("0-3"))} {
		raw, err := json.Marshal(object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	w := &world{mckubes: []*mcv1.McKube{mckube("m"), mckube("n", selecting("app", "web"))}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			t.Skip("no JSON: the API server sends none")
		}
		for _, path := range []string{webhooks.PathMutatePods, webhooks.PathValidatePods, webhooks.PathValidateMcKubes} {
			if r := send(t, w, path, "Pod", raw); r == nil || !r.Allowed && r.Result.Code == http.StatusInternalServerError {
				t.Errorf("%s: %+v", path, r)
			}
		}
	})
}

// A pod there would start without its claim, and the McKube would promise what no controller keeps.
func TestMcKubesOfSparedNamespacesAreRefused(t *testing.T) {
	w := &world{spared: []string{"kube-system", "default"}}
	r := ask(t, w, webhooks.PathValidateMcKubes, "McKube", mckube("m"))
	if r.Allowed {
		t.Fatal("it is admitted")
	}
	for _, want := range []string{"metadata.namespace", `namespace "default"`, "never sent to the webhooks", "another namespace"} {
		if !strings.Contains(r.Result.Message, want) {
			t.Errorf("%s, want %q", r.Result.Message, want)
		}
	}
	w.spared = []string{"kube-system"}
	if r := ask(t, w, webhooks.PathValidateMcKubes, "McKube", mckube("m")); !r.Allowed {
		t.Errorf("elsewhere: %s", r.Result.Message)
	}
}
