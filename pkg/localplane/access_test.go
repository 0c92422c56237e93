package localplane_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mainspring-rt/mainspring/pkg/test/access"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func TestServiceAccountHasOnlyItsRights(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	client := adminOf(t, plane)
	meta := metav1.ObjectMeta{Name: "reader", Namespace: "default"}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}}
	if _, err := client.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: "default"}},
	}
	if _, err := client.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := access.Await(t.Context(), plane.RESTConfig(), "default", binding.Subjects[0], role.Rules[0]); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := plane.KubeconfigFor(t.Context(), "default", "reader")
	if err != nil {
		t.Fatal(err)
	}
	reader := clientFromFile(t, kubeconfig)
	if _, err := reader.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("listing what the role grants: %v", err)
	}
	if _, err := reader.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing what no role grants: %v, want forbidden", err)
	}
}

func TestKubeconfigForMissingServiceAccount(t *testing.T) {
	t.Parallel()
	_, err := sharedPlane(t).KubeconfigFor(t.Context(), "default", "nobody")
	if err == nil || !strings.Contains(err.Error(), "default/nobody") {
		t.Errorf("the error %v does not name the ServiceAccount", err)
	}
}

func TestAdminKubeconfig(t *testing.T) {
	t.Parallel()
	client := clientFromFile(t, sharedPlane(t).Kubeconfig())
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	config := sharedPlane(t).RESTConfig()
	config.BearerToken = ""
	_, err := clientFor(t, config).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("listing pods without credentials: %v, want a refusal", err)
	}
}

// TestNodesSeeOnlyThemselves shows that the Node authorizer and NodeRestriction are on.
func TestNodesSeeOnlyThemselves(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	addNode(t, plane, "mine")
	addNode(t, plane, "other")
	config := plane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:mine", Groups: []string{"system:nodes"}}
	node := clientFor(t, config)
	if _, err := node.CoreV1().Nodes().Get(t.Context(), "mine", metav1.GetOptions{}); err != nil {
		t.Errorf("a node reads itself: %v", err)
	}
	if _, err := node.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node lists secrets: %v, want forbidden", err)
	}
	label := []byte(`{"metadata":{"labels":{"example.test/x":"y"}}}`)
	if _, err := node.CoreV1().Nodes().Patch(t.Context(), "other", types.MergePatchType, label, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node labels another: %v, want forbidden", err)
	}
}

// TestEtcdRefusesTheClustersCertificates shows that rights in the cluster are none in etcd.
func TestEtcdRefusesTheClustersCertificates(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	endpoint := argument(t, plane.PIDs()[toolchain.Etcd], "--advertise-client-urls")
	administrator, err := tls.LoadX509KeyPair(filepath.Join(plane.Dir(), "pki", "kubelet-client.crt"), filepath.Join(plane.Dir(), "pki", "kubelet-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates:       []tls.Certificate{administrator},
		InsecureSkipVerify: true, //nolint:gosec // it is etcd's refusal that is looked at
	}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
		t.Errorf("etcd answers the cluster's administrator: %s", response.Status)
	} else if !strings.Contains(err.Error(), "tls:") {
		t.Errorf("etcd was not reached: %v", err)
	}
}

// argument returns the value of a flag of a running process.
func argument(t *testing.T, pid int, flag string) string {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, arg := range strings.Split(string(content), "\x00") {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value
		}
	}
	t.Fatalf("process %d has no argument %s", pid, flag)
	return ""
}

func TestWebhookByURLDenies(t *testing.T) {
	t.Parallel()
	const reason = "no ConfigMap may be called forbidden"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: false, Result: &metav1.Status{Message: reason}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()

	client := adminOf(t, sharedPlane(t))
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	address := server.URL + "/validate"
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "deny.localplane.test",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &address, CABundle: certificateOf(server.TLS)},
			Rules:                   []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "name", Expression: `object.metadata.name == "forbidden"`}},
			SideEffects:             &none,
			FailurePolicy:           &fail,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	webhooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := webhooks.Create(t.Context(), webhook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectDenied(t, client, reason)
}

func certificateOf(config *tls.Config) []byte {
	return encodeCertificate(config.Certificates[0].Certificate[0])
}
