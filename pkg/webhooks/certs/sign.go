package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// signsAfter is how long after the authority before it an authority signs for others: clients such as Prometheus take
// minutes to read a Secret again, and who asks has a certificate of the authority before.
const signsAfter = 10 * time.Minute

// ErrSettling means that the authority is too new to sign: clients may not know it yet.
var ErrSettling = errors.New("the certificate authority is too new to sign")

// Sign returns a server certificate of the authority in a Secret's data, in PEM, for the key and the DNS names of a
// request that the caller has judged. Nothing else is taken from the request. It is valid for a time from now on, at
// most for as long as a server certificate of the authority's own.
func (a Authority) Sign(data map[string][]byte, request *x509.CertificateRequest, validity time.Duration, now time.Time) ([]byte, error) {
	if len(request.DNSNames) == 0 {
		return nil, errors.New("signing a certificate: it needs at least one DNS name")
	}
	if !a.validCA(data, now) {
		return nil, fmt.Errorf("signing a certificate: %s and %s in the Secret are no authority that is valid for longer", KeyCA, KeyCAKey)
	}
	ca, err := authorityIn(data)
	if err != nil {
		return nil, err
	}
	if since := now.Sub(ca.Cert.NotBefore.Add(backdate)); len(data[KeyPreviousCA]) > 0 && since < signsAfter {
		return nil, ErrSettling
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 159)) // RFC 5280, section 4.1.2.2: 20 octets at most, positive
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: request.DNSNames[0]}, DNSNames: request.DNSNames,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(min(validity, a.Validity)), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: *usages(),
	}, ca.Cert, request.PublicKey, ca.Key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	var out bytes.Buffer
	if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return nil, fmt.Errorf("encoding a certificate: %w", err)
	}
	return out.Bytes(), nil
}
