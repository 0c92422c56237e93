package agentcertificate_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/controllers/agentcertificate"
	"github.com/mainspring-rt/mainspring/pkg/servingcert"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(apiserver.Main(m))
}

var (
	now       = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	agents    = servingcert.Agents{Namespace: "default", Name: "agent"}
	secret    = types.NamespacedName{Namespace: "default", Name: "authority"}
	authority = certs.Authority{DNSNames: []string{"webhook.default.svc"}, Validity: 30 * 24 * time.Hour}
)

// world is an API server with the Secret of an authority.
type world struct {
	*testing.T
	api    client.WithWatch
	signer *agentcertificate.Signer
	data   map[string][]byte
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, api: apiserver.Client(t, apiserver.Scheme(t))}
	var err error
	if w.data, _, err = authority.Renew(nil, now); err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}, Data: w.data}
	if err := w.api.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		apiserver.Empty(t, w.api, &corev1.SecretList{}, &certificatesv1.CertificateSigningRequestList{})
	})
	w.signer = &agentcertificate.Signer{
		Requests: w.api, Secrets: w.api, Client: w.api, Agents: agents, Secret: secret, Authority: authority, Clock: clocktesting.NewFakePassiveClock(now),
	}
	return w
}

// store replaces what the Secret has.
func (w *world) store(data map[string][]byte) {
	w.Helper()
	s := &corev1.Secret{}
	if err := w.api.Get(w.Context(), secret, s); err != nil {
		w.Fatal(err)
	}
	s.Data = data
	if err := w.api.Update(w.Context(), s); err != nil {
		w.Fatal(err)
	}
}

// request creates a request as a user whose token is of a node, for the names of the agent on another or the same.
func (w *world) request(user, node, forNode string) *certificatesv1.CertificateSigningRequest {
	w.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	request, err := servingcert.NewRequest(key, agents.Service(), forNode)
	if err != nil {
		w.Fatal(err)
	}
	config := apiserver.Config(w)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}}}
	as, err := client.New(config, client.Options{Scheme: w.api.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-"},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: servingcert.SignerName, Usages: servingcert.Usages()},
	}
	if err := as.Create(w.Context(), csr); err != nil {
		w.Fatal(err)
	}
	return csr
}

// decide has the signer decide a request, and returns what has become of it.
func (w *world) decide(csr *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	w.Helper()
	_, decided := w.signer.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(csr)})
	after := &certificatesv1.CertificateSigningRequest{}
	if err := w.api.Get(w.Context(), client.ObjectKeyFromObject(csr), after); err != nil {
		w.Fatal(err)
	}
	return after, decided
}

// conditions of a request, by type, with their messages.
func conditions(csr *certificatesv1.CertificateSigningRequest) map[certificatesv1.RequestConditionType]string {
	found := map[certificatesv1.RequestConditionType]string{}
	for _, c := range csr.Status.Conditions {
		found[c.Type] = c.Message
	}
	return found
}

func (w *world) expectSigned(csr *certificatesv1.CertificateSigningRequest, node string) {
	w.Helper()
	block, _ := pem.Decode(csr.Status.Certificate)
	if block == nil {
		w.Fatalf("no certificate; conditions %v", conditions(csr))
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certs.Bundle(w.data))
	for _, name := range servingcert.DNSNames(agents.Service(), node) {
		if _, err := certificate.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
			w.Errorf("%s: %v", name, err)
		}
	}
}

const agent = "system:serviceaccount:default:agent"

func TestTheRequestOfAnAgentIsSigned(t *testing.T) {
	w := newWorld(t)
	csr, err := w.decide(w.request(agent, "node-1", "node-1"))
	if err != nil {
		t.Fatal(err)
	}
	w.expectSigned(csr, "node-1")
	again, err := w.decide(csr)
	if err != nil || again.ResourceVersion != csr.ResourceVersion {
		t.Errorf("what is signed is written again: %v", err)
	}
}

// A controller that dies between approval and certificate leaves a request that the next one signs.
func TestASignerDiesBetweenItsWrites(t *testing.T) {
	w := newWorld(t)
	request := w.request(agent, "node-1", "node-1")
	died := errors.New("died")
	w.signer.Client = interceptor.NewClient(w.api, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, options ...client.SubResourceUpdateOption) error {
			if name == "status" {
				return died
			}
			return c.SubResource(name).Update(ctx, o, options...)
		},
	})
	csr, err := w.decide(request)
	if _, approved := conditions(csr)[certificatesv1.CertificateApproved]; !errors.Is(err, died) || !approved || len(csr.Status.Certificate) > 0 {
		t.Fatalf("%v, conditions %v", err, conditions(csr))
	}
	w.signer.Client = w.api
	if csr, err = w.decide(csr); err != nil {
		t.Fatal(err)
	}
	w.expectSigned(csr, "node-1")
}

func TestRequestsOfOthersAreDenied(t *testing.T) {
	w := newWorld(t)
	for what, csr := range map[string]*certificatesv1.CertificateSigningRequest{
		"spec.username":    w.request("system:serviceaccount:tenant:agent", "node-1", "node-1"),
		"asks for 2 names": w.request(agent, "node-1", "node-2"),
	} {
		after, err := w.decide(csr)
		if message := conditions(after)[certificatesv1.CertificateDenied]; err != nil || !strings.Contains(message, what) || len(after.Status.Certificate) > 0 {
			t.Errorf("%v; denied with %q, want %q", err, message, what)
		}
	}
	// An administrator who approves it does not make it an agent's.
	csr := w.request(agent, "node-1", "node-2")
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByHand"}}
	if err := w.api.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	after, err := w.decide(csr)
	if _, failed := conditions(after)[certificatesv1.CertificateFailed]; err != nil || !failed || len(after.Status.Certificate) > 0 {
		t.Errorf("%v; conditions %v, want Failed", err, conditions(after))
	}
}

// Without an authority that may sign, a request is neither approved nor refused, and is looked at again.
func TestARequestWaitsForTheAuthority(t *testing.T) {
	w := newWorld(t)
	csr := w.request(agent, "node-1", "node-1")
	later := now.Add(8*authority.Validity + time.Hour)
	replaced, _, err := authority.Renew(w.data, later)
	if err != nil {
		t.Fatal(err)
	}
	w.signer.Clock = clocktesting.NewFakePassiveClock(later)
	for what, data := range map[string]map[string][]byte{"no authority": {}, "one at its end": w.data, "one that is too new": replaced} {
		w.store(data)
		result, err := w.signer.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(csr)})
		after := &certificatesv1.CertificateSigningRequest{}
		if got := w.api.Get(t.Context(), client.ObjectKeyFromObject(csr), after); err != nil || got != nil || result.RequeueAfter <= 0 || len(after.Status.Conditions) > 0 {
			t.Errorf("%s: %+v, %v, conditions %v; want that it waits", what, result, err, conditions(after))
		}
	}
	w.store(replaced)
	w.signer.Clock = clocktesting.NewFakePassiveClock(later.Add(time.Hour))
	after, err := w.decide(csr)
	if err != nil || len(after.Status.Certificate) == 0 {
		t.Errorf("%v, conditions %v; want that it is signed", err, conditions(after))
	}
}

// A request that is deleted while it is decided is no error.
func TestARequestIsDeletedMeanwhile(t *testing.T) {
	w := newWorld(t)
	csr := w.request(agent, "node-1", "node-1")
	w.signer.Client = interceptor.NewClient(w.api, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, options ...client.SubResourceUpdateOption) error {
			if err := client.IgnoreNotFound(c.Delete(ctx, csr)); err != nil {
				return err
			}
			return c.SubResource(name).Update(ctx, o, options...)
		},
	})
	result, err := w.signer.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(csr)})
	if err != nil || result.RequeueAfter > time.Second {
		t.Errorf("%+v, %v", result, err)
	}
}
