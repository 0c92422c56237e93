package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Keys of the Secret.
const (
	KeyCA         = "ca.crt"
	KeyCAKey      = "ca.key"
	KeyPreviousCA = "previous-ca.crt"
	KeyCert       = "tls.crt"
	KeyCertKey    = "tls.key"
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
	return holds(data[KeyCA], data[KeyCA], data[KeyCAKey], x509.VerifyOptions{DNSName: caName, CurrentTime: now.Add(2 * a.Validity)}) == nil
}

func (a Authority) validServer(data map[string][]byte, now time.Time) bool {
	return a.serves(data[KeyCA], data, now.Add(a.Validity/3))
}

// serves tells whether the server certificate will be accepted at a time under each name.
func (a Authority) serves(ca []byte, data map[string][]byte, at time.Time) bool {
	for _, name := range a.DNSNames {
		if holds(ca, data[KeyCert], data[KeyCertKey], x509.VerifyOptions{DNSName: name, KeyUsages: usages, CurrentTime: at}) != nil {
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
	cert, key, err := makeAuthority(now.Add(-backdate), now.Add(10*a.Validity))
	if err != nil {
		return fmt.Errorf("making a certificate authority: %w", err)
	}
	data[KeyPreviousCA] = data[KeyCA]
	data[KeyCA], data[KeyCAKey] = cert, key
	return nil
}

func (a Authority) newServer(data map[string][]byte, now time.Time) error {
	signer, err := signerIn(data)
	if err != nil {
		return err
	}
	cert, key, err := signer.makeServer(a.DNSNames, now.Add(-backdate), now.Add(a.Validity))
	if err != nil {
		return fmt.Errorf("making a server certificate: %w", err)
	}
	data[KeyCert], data[KeyCertKey] = cert, key
	return nil
}
