package charts_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"

	"github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/servingcert"
)

// agentService is what Prometheus verifies agents by.
const agentService = "mainspring-agent." + namespace + ".svc"

// signingKey is a new key of an agent. The source of randomness does not fail (crypto/rand).
func signingKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

// certificateRequest is the request of an agent for the names of a node's agent.
func certificateRequest(forNode string) (*certificatesv1.CertificateSigningRequest, error) {
	request, err := servingcert.NewRequest(signingKey(), agentService, forNode)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-"},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: servingcert.SignerName, Usages: servingcert.Usages()},
	}, err
}

// requestsCertificate has an agent make a request that is changed.
func requestsCertificate(change func(*certificatesv1.CertificateSigningRequest)) func(client.Client, string) error {
	return func(c client.Client, node string) error {
		csr, err := certificateRequest(node)
		change(csr)
		return errors.Join(err, c.Create(context.Background(), csr))
	}
}

// requestCertificate makes the request of an agent on a node for the names of an agent on another or the same, with the
// rights of the chart.
func (p plane) requestCertificate(t *testing.T, node, forNode string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr, err := certificateRequest(forNode)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(p.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: agentUser, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}}}
	as, err := client.New(config, client.Options{Scheme: p.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := as.Create(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	return csr
}

// expectAgentCertificates expects that the controller signs the request of an agent for its own node, so that
// Prometheus can verify it, and no other.
func (p plane) expectAgentCertificates(t *testing.T) {
	t.Helper()
	own, others := p.requestCertificate(t, "mine", "mine"), p.requestCertificate(t, "mine", "other")
	soon(t, func(g gomega.Gomega) {
		g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(own), own)).To(gomega.Succeed())
		g.Expect(own.Status.Certificate).NotTo(gomega.BeEmpty())
		g.Expect(p.client.Get(t.Context(), client.ObjectKeyFromObject(others), others)).To(gomega.Succeed())
		g.Expect(others.Status.Conditions).To(gomega.ConsistOf(gomega.HaveField("Type", certificatesv1.CertificateDenied)))
	})
	secret := &corev1.Secret{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "mainspring-webhook"}, secret); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["bundle.crt"])
	block, _ := pem.Decode(own.Status.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{DNSName: agentService, Roots: roots}); err != nil {
		t.Errorf("what was signed is not verified as Prometheus does: %v", err)
	}
}
