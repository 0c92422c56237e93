package servingcert_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/mainspring-rt/mainspring/pkg/servingcert"
)

var agents = servingcert.Agents{Namespace: "system", Name: "agent"}

func p256(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encode(t *testing.T, key crypto.Signer, template x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// requested is the request of the agent on a node, as the API server stores it.
func requested(t *testing.T, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	request, err := servingcert.NewRequest(p256(t), agents.Service(), node)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: request, SignerName: servingcert.SignerName, Usages: servingcert.Usages(), Username: "system:serviceaccount:system:agent",
		Extra: map[string]certificatesv1.ExtraValue{"authentication.kubernetes.io/node-name": {node}},
	}}
}

func TestTheRequestOfAnAgentIsForItsNamesAlone(t *testing.T) {
	long := strings.Repeat("n.", 120) + "n"
	for node, want := range map[string][]string{
		"node-1": {"agent.system.svc", "node-1.agent.system.svc"},
		long:     {"agent.system.svc"}, // with the node's it would be longer than DNS allows
	} {
		request, err := agents.Judge(requested(t, node))
		if err != nil || !slices.Equal(request.DNSNames, want) {
			t.Errorf("node %s: names %q, %v; want %q", node, request.DNSNames, err, want)
		}
	}
}

func TestRequestsThatAreNotAnAgentsAreRefused(t *testing.T) {
	own := []string{"agent.system.svc", "node-1.agent.system.svc"}
	with := func(template x509.CertificateRequest) func(*certificatesv1.CertificateSigningRequest) {
		return func(csr *certificatesv1.CertificateSigningRequest) { csr.Spec.Request = encode(t, p256(t), template) }
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequest)
		want   string
	}{
		"another signer": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeletServingSignerName
		}, "spec.signerName"},
		"another account": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Username = "system:serviceaccount:default:agent"
		}, "spec.username"},
		"a token without a node": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Extra = nil }, "names no node"},
		"a token of two nodes": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Extra["authentication.kubernetes.io/node-name"] = []string{"node-1", "node-2"}
		}, "names no node"},
		"the token of another": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Extra["authentication.kubernetes.io/node-name"] = []string{"node-2"}
		}, "spec.request asks for "},
		"a client's usages": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageClientAuth)
		}, "spec.usages"},
		"no usages":               {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = nil }, "spec.usages"},
		"a name of the webhooks'": {with(x509.CertificateRequest{DNSNames: append(slices.Clone(own), "mainspring-webhook.system.svc")}), "spec.request asks for "},
		"no name":                 {with(x509.CertificateRequest{}), "spec.request asks for "},
		"an address":              {with(x509.CertificateRequest{DNSNames: own, IPAddresses: []net.IP{{10, 0, 0, 1}}}), "DNS names alone"},
		"an e-mail address":       {with(x509.CertificateRequest{DNSNames: own, EmailAddresses: []string{"a@example.com"}}), "DNS names alone"},
		"a URI":                   {with(x509.CertificateRequest{DNSNames: own, URIs: []*url.URL{{Scheme: "spiffe", Host: "x"}}}), "DNS names alone"},
		"another curve": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = encode(t, p384, x509.CertificateRequest{DNSNames: own})
		}, "P-256"},
		"another kind of key": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = encode(t, edwards, x509.CertificateRequest{DNSNames: own})
		}, "P-256"},
		"no PEM": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("x") }, "not one PEM block"},
		"two blocks": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = append(r.Spec.Request, r.Spec.Request...)
		}, "not one PEM block"},
		"a long one": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = append(r.Spec.Request, make([]byte, 8<<10)...)
		}, "want 8192 at most"},
		"another's signature": {func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(r.Spec.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			r.Spec.Request = pem.EncodeToMemory(block)
		}, "spec.request"},
	} {
		t.Run(what, func(t *testing.T) {
			csr := requested(t, "node-1")
			c.change(csr)
			if _, err := agents.Judge(csr); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want an error with %q", err, c.want)
			}
		})
	}
}

func TestAgentsAreNamedByNamespaceAndName(t *testing.T) {
	if got, err := servingcert.ParseAgents("system/agent"); err != nil || got != agents || got.Service() != "agent.system.svc" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "agent", "system/", "/agent", "system/agent/x", "system/a.b", "System/agent"} {
		if got, err := servingcert.ParseAgents(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
