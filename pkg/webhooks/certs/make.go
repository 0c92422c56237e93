package certs

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// keyBits of the RSA keys. RSA, as every API server and client takes it.
const keyBits = 2048

const pemCertificate, pemKey = "CERTIFICATE", "RSA PRIVATE KEY"

var usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}

// makeAuthority makes a certificate authority, in PEM.
func makeAuthority(begin, end time.Time) (certificate, key []byte, err error) {
	return sign(&x509.Certificate{
		SerialNumber: big.NewInt(0), Subject: pkix.Name{CommonName: caName, Organization: []string{"mainspring"}}, DNSNames: []string{caName},
		NotBefore: begin, NotAfter: end, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
	}, nil)
}

// signer is an authority that is there.
type signer struct {
	certificate *x509.Certificate
	key         *rsa.PrivateKey
}

func signerIn(data map[string][]byte) (*signer, error) {
	certificate, err := parse(data[KeyCA])
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data[KeyCAKey])
	if block == nil {
		return nil, fmt.Errorf("reading %s: it is not PEM", KeyCAKey)
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", KeyCAKey, err)
	}
	return &signer{certificate: certificate, key: key}, nil
}

// makeServer makes the certificate of a server that is called by these names, in PEM.
func (s *signer) makeServer(names []string, begin, end time.Time) (certificate, key []byte, err error) {
	return sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: begin, NotAfter: end, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: usages,
	}, s)
}

// sign makes a key, and a certificate for it that by signs; nil: the key itself.
func sign(template *x509.Certificate, by *signer) (certificate, key []byte, err error) {
	own, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	if by == nil {
		by = &signer{certificate: template, key: own}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, own.Public(), by.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: x509.MarshalPKCS1PrivateKey(own)}), nil
}

// holds says why a certificate would not be accepted by who knows only the authority, or why the key is not its.
func holds(authority, certificate, key []byte, options x509.VerifyOptions) error {
	root, err := parse(authority)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("reading a certificate and its key: %w", err)
	}
	options.Roots = x509.NewCertPool()
	options.Roots.AddCert(root)
	_, err = pair.Leaf.Verify(options)
	return err
}

func parse(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("reading a certificate: it is not PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	return certificate, nil
}
