package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// request is one for a name, with its key in PEM.
func request(t *testing.T, names ...string) (*x509.CertificateRequest, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.CertificateRequest{DNSNames: names, PublicKey: key.Public()}, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func TestASignedCertificateServesItsNamesAlone(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, _ := renew(t, nil, now)
	asked, key := request(t, "agent.svc", "node.agent.svc")
	signed, err := authority.Sign(data, asked, validity, now)
	if err != nil {
		t.Fatal(err)
	}
	server := map[string][]byte{certs.KeyCert: signed, certs.KeyCertKey: key}
	for _, name := range asked.DNSNames {
		if err := handshake(t, certs.Bundle(data), server, name, now.Add(validity-time.Minute)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range authority.DNSNames {
		if err := handshake(t, certs.Bundle(data), server, name, now); err == nil {
			t.Errorf("it serves %s, which is the webhooks'", name)
		}
	}
	if err := handshake(t, certs.Bundle(data), server, "agent.svc", now.Add(validity+time.Minute)); err == nil {
		t.Error("it serves after its end")
	}
	block, _ := pem.Decode(signed)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil || certificate.IsCA || !slices.Equal(certificate.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("authority %t, usages %v, %v; want a server's", certificate.IsCA, certificate.ExtKeyUsage, err)
	}
}

// Whatever a Secret has become, nothing is signed that clients with its bundle would not accept.
func TestAnAuthorityThatClientsMayNotKnowSignsNothing(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, _ := renew(t, nil, now)
	asked, key := request(t, "agent.svc")
	late := now.Add(8*validity + time.Hour) // the authority would end before twice a certificate's time
	if _, err := authority.Sign(data, asked, validity, late); err == nil {
		t.Error("an authority at its end signs")
	}
	serving, _ := renew(t, data, now.Add(8*validity-time.Hour)) // a server certificate that outlasts the change of the authority
	next, changed := renew(t, serving, late)
	if !changed {
		t.Fatal("the authority is not replaced")
	}
	if _, err := authority.Sign(next, asked, validity, late); !errors.Is(err, certs.ErrSettling) {
		t.Errorf("a new authority: %v; want ErrSettling", err)
	}
	former, formerKey := request(t, "agent.svc")
	before, err := authority.Sign(data, former, validity, now.Add(7*validity))
	if err != nil {
		t.Fatal(err)
	}
	if err := handshake(t, next[certs.KeyBundle], map[string][]byte{certs.KeyCert: before, certs.KeyCertKey: formerKey}, "agent.svc", now.Add(7*validity+time.Hour)); err != nil {
		t.Errorf("what the authority before has signed: %v", err)
	}
	if _, err := authority.Sign(next, asked, validity, late.Add(9*time.Minute)); !errors.Is(err, certs.ErrSettling) {
		t.Errorf("an authority that Prometheus may not have read: %v; want ErrSettling", err)
	}
	later := late.Add(11 * time.Minute)
	signed, err := authority.Sign(next, asked, validity, later)
	if err != nil {
		t.Fatal(err)
	}
	if err := handshake(t, certs.Bundle(next), map[string][]byte{certs.KeyCert: signed, certs.KeyCertKey: key}, "agent.svc", later); err != nil {
		t.Error(err)
	}
	if _, err := authority.Sign(next, &x509.CertificateRequest{PublicKey: asked.PublicKey}, validity, later); err == nil {
		t.Error("a certificate without a name is signed")
	}
	for _, broken := range []map[string][]byte{nil, {certs.KeyCA: data[certs.KeyCA]}, {certs.KeyCA: []byte("x"), certs.KeyCAKey: data[certs.KeyCAKey]}} {
		if _, err := authority.Sign(broken, asked, validity, now); err == nil {
			t.Errorf("a Secret with %d keys signs", len(broken))
		}
	}
}
