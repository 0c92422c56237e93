// Package servingcert says which serving certificates node agents request, and which requests the controller signs. Requests are
// CertificateSigningRequests of a signer of our own (KEP-1513); the private key never leaves the node.
package servingcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// SignerName is the signer of requests for serving certificates of node agents.
const SignerName = "mckube.io/agent-serving"

const (
	// nodeNameKey is the key in a token's extra attributes under which the API server puts the node of the
	// token's pod (KEP-4193).
	nodeNameKey = "authentication.kubernetes.io/node-name"
	// requestType is the type of the PEM block of a request.
	requestType = "CERTIFICATE REQUEST"
	// maxRequest is the longest request in bytes: several times what ours has with names of full length.
	maxRequest = 8 << 10
	// maxDNSName is the longest name of DNS (RFC 1035, section 2.3.4).
	maxDNSName = 253
)

// Usages are those of a serving certificate with a key of an elliptic curve.
func Usages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
}

// DNSNames are the names by which clients verify the agent of a node: the agents' Service, and the node below it. A
// node's name alone is none of them: a node may have the name of another server. A name that would be longer than DNS
// allows is left out.
func DNSNames(service, node string) []string {
	names := []string{service}
	if own := node + "." + service; len(own) <= maxDNSName {
		names = append(names, own)
	}
	return names
}

// NewRequest returns a request in PEM for the names of a node's agent.
func NewRequest(key crypto.Signer, service, node string) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "mainspring-agent"}, DNSNames: DNSNames(service, node),
	}, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: requestType, Bytes: der}), nil
}

// Agents are the node agents of an installation.
type Agents struct {
	// Namespace and Name of their ServiceAccount and of their Service.
	Namespace, Name string
}

// ParseAgents reads NAMESPACE/NAME.
func ParseAgents(text string) (Agents, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
		return Agents{}, fmt.Errorf("%q is not NAMESPACE/NAME of the ServiceAccount and the Service of node agents", text)
	}
	return Agents{Namespace: namespace, Name: name}, nil
}

// Service is the DNS name of the agents' Service.
func (a Agents) Service() string { return a.Name + "." + a.Namespace + ".svc" }

// Judge returns a request that may be signed: of an agent of this installation, for a key of the curve P-256, and for
// names of its own node. The error says what keeps it from being signed. Who has made the request, and on which node
// its token is, are fields that the API server sets.
func (a Agents) Judge(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	node, err := a.nodeOf(csr)
	if err != nil {
		return nil, err
	}
	usages := slices.Clone(csr.Spec.Usages)
	slices.Sort(usages)
	if !slices.Equal(usages, Usages()) {
		return nil, fmt.Errorf("spec.usages is %q; want %q", csr.Spec.Usages, Usages())
	}
	request, err := parse(csr.Spec.Request)
	if err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	if key, ok := request.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("spec.request has no key of the curve P-256")
	}
	if len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		return nil, errors.New("spec.request asks for e-mail addresses, IP addresses or URIs; want DNS names alone")
	}
	want := DNSNames(a.Service(), node)
	if !slices.Equal(request.DNSNames, want) {
		last := ""
		if len(request.DNSNames) > 0 {
			last = request.DNSNames[len(request.DNSNames)-1]
		}
		return nil, fmt.Errorf("spec.request asks for %d names, the last of them %.300q; an agent on node %s may ask for %q", len(request.DNSNames), last, node, want)
	}
	return request, nil
}

// nodeOf returns the node on which the agent runs that has made a request.
func (a Agents) nodeOf(csr *certificatesv1.CertificateSigningRequest) (string, error) {
	if csr.Spec.SignerName != SignerName {
		return "", fmt.Errorf("spec.signerName is %q; want %q", csr.Spec.SignerName, SignerName)
	}
	if want := "system:serviceaccount:" + a.Namespace + ":" + a.Name; csr.Spec.Username != want {
		return "", fmt.Errorf("spec.username is %q; want %q", csr.Spec.Username, want)
	}
	nodes := csr.Spec.Extra[nodeNameKey]
	if len(nodes) != 1 || len(validation.IsDNS1123Subdomain(nodes[0])) > 0 {
		return "", errors.New("the token of the request names no node: it is not bound to a pod that runs on one")
	}
	return nodes[0], nil
}

func parse(request []byte) (*x509.CertificateRequest, error) {
	if len(request) > maxRequest {
		return nil, fmt.Errorf("it has %d bytes; want %d at most", len(request), maxRequest)
	}
	block, rest := pem.Decode(request)
	if block == nil || block.Type != requestType || len(rest) > 0 {
		return nil, fmt.Errorf("it is not one PEM block %q", requestType)
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it is no certificate request: %w", err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("its signature is not of its key: %w", err)
	}
	return parsed, nil
}
