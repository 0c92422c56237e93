package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
)

// Keys of the Secret.
const (
	KeyCA         = "ca.crt"
	KeyCAKey      = "ca.key"
	KeyPreviousCA = "previous-ca.crt"
	KeyCert       = "tls.crt"
	KeyCertKey    = "tls.key"
	// KeyBundle has the authority and the one before it: what that has signed is accepted until it is renewed.
	KeyBundle = "bundle.crt"
)

const (
	caName = "mainspring-webhook-ca"
	// backdate lets clocks of API servers be behind ours.
	backdate = time.Hour
	// settling is how long a new authority is in the bundles before it signs.
	settling = time.Minute
)

// Authority says which certificates there shall be.
type Authority struct {
	// DNSNames that the server is called by; at least one.
	DNSNames []string
	// Validity of a server certificate. It is renewed when a third of it is left. An authority is valid
	// for ten times as long, and replaced while it still covers two server certificates.
	Validity time.Duration
}

// Renew returns what the Secret's data should become, and whether that is a change. It never takes a
// certificate away before another is in its place:
// first a new authority joins the bundle, and only when it has been there for a while it signs.
func (a Authority) Renew(data map[string][]byte, now time.Time) (map[string][]byte, bool, error) {
	next, changed, err := a.renew(data, now)
	if err != nil {
		return nil, false, err
	}
	if bundle := Bundle(next); !bytes.Equal(next[KeyBundle], bundle) {
		next[KeyBundle], changed = bundle, true
	}
	return next, changed, nil
}

func (a Authority) renew(data map[string][]byte, now time.Time) (map[string][]byte, bool, error) {
	if len(a.DNSNames) == 0 {
		return nil, false, errors.New("making a certificate: it needs at least one DNS name")
	}
	next := maps.Clone(data)
	if next == nil {
		next = map[string][]byte{}
	}
	if !a.validCA(next, now) {
		if err := a.newCA(next, now); err != nil {
			return nil, false, err
		}
	} else if a.validServer(next, now) || a.settling(next, now) {
		return next, false, nil
	}
	if a.settling(next, now) {
		return next, true, nil
	}
	return next, true, a.newServer(next, now)
}

// Bundle is what API servers verify the certificate against.
func Bundle(data map[string][]byte) []byte {
	bundle := bytes.Clone(data[KeyCA])
	if previous := data[KeyPreviousCA]; len(previous) > 0 && !bytes.Equal(previous, bundle) {
		bundle = append(bundle, previous...)
	}
	return bundle
}

func (a Authority) validCA(data map[string][]byte, now time.Time) bool {
	ok, err := rotator.ValidCert(data[KeyCA], data[KeyCA], data[KeyCAKey], caName, nil, now.Add(2*a.Validity))
	return ok && err == nil
}

func (a Authority) validServer(data map[string][]byte, now time.Time) bool {
	return a.serves(data[KeyCA], data, now.Add(a.Validity/3))
}

// serves tells whether the server certificate will be accepted at a time under each name.
func (a Authority) serves(ca []byte, data map[string][]byte, at time.Time) bool {
	for _, name := range a.DNSNames {
		ok, err := rotator.ValidCert(ca, data[KeyCert], data[KeyCertKey], name, usages(), at)
		if !ok || err != nil {
			return false
		}
	}
	return true
}

// settling tells that the authority is too new to sign, and that there is a certificate until it may.
func (a Authority) settling(data map[string][]byte, now time.Time) bool {
	ca, err := parse(data[KeyCA])
	if err != nil || !a.serves(data[KeyPreviousCA], data, now) {
		return false
	}
	return now.Before(ca.NotBefore.Add(backdate).Add(min(settling, a.Validity/10)))
}

func (a Authority) newCA(data map[string][]byte, now time.Time) error {
	made, err := a.rotator().CreateCACert(now.Add(-backdate), now.Add(10*a.Validity))
	if err != nil {
		return fmt.Errorf("making a certificate authority: %w", err)
	}
	data[KeyPreviousCA] = data[KeyCA]
	data[KeyCA], data[KeyCAKey] = made.CertPEM, made.KeyPEM
	return nil
}

func (a Authority) newServer(data map[string][]byte, now time.Time) error {
	ca, err := authorityIn(data)
	if err != nil {
		return err
	}
	cert, key, err := a.rotator().CreateCertPEM(ca, now.Add(-backdate), now.Add(a.Validity))
	if err != nil {
		return fmt.Errorf("making a server certificate: %w", err)
	}
	data[KeyCert], data[KeyCertKey] = cert, key
	return nil
}

func (a Authority) rotator() *rotator.CertRotator {
	return &rotator.CertRotator{
		CAName: caName, CAOrganization: "mainspring",
		DNSName: a.DNSNames[0], ExtraDNSNames: a.DNSNames[1:], ExtKeyUsages: usages(),
	}
}

func usages() *[]x509.ExtKeyUsage { return &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

func authorityIn(data map[string][]byte) (*rotator.KeyPairArtifacts, error) {
	cert, err := parse(data[KeyCA])
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
	return &rotator.KeyPairArtifacts{Cert: cert, Key: key, CertPEM: data[KeyCA], KeyPEM: data[KeyCAKey]}, nil
}

func parse(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("reading a certificate: it is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	return cert, nil
}
