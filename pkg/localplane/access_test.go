package localplane_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestServiceAccountHasOnlyItsRights(t *testing.T) {
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
	_, err := sharedPlane(t).KubeconfigFor(t.Context(), "default", "nobody")
	if err == nil || !strings.Contains(err.Error(), "default/nobody") {
		t.Errorf("the error %v does not name the ServiceAccount", err)
	}
}

func TestAdminKubeconfig(t *testing.T) {
	client := clientFromFile(t, sharedPlane(t).Kubeconfig())
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	config := sharedPlane(t).RESTConfig()
	config.CertData, config.KeyData = nil, nil
	_, err := clientFor(t, config).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("listing pods without credentials: %v, want a refusal", err)
	}
}

func TestWebhookByURLDenies(t *testing.T) {
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
