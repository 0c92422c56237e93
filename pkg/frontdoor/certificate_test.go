package frontdoor_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

var day = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func certificate(dir string, at time.Time) (*frontdoor.Certificate, error) {
	return frontdoor.NewCertificate(frontdoor.CertificateOptions{
		Keep: dir, DNSNames: []string{"localhost"}, Clock: clocktesting.NewFakeClock(at), Log: logr.Discard(),
	})
}

// serves is the certificate that a server has.
func serves(t *testing.T, c *frontdoor.Certificate) []byte {
	t.Helper()
	pair, err := c.TLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.Raw
}

// A process that starts does not read without end what something has made of its files. It puts that aside and makes a certificate anew.
func TestAKeptFileThatIsTooLongIsPutAside(t *testing.T) {
	t.Parallel()
	for _, name := range []string{certs.KeyCA, certs.KeyCAKey, certs.KeyPreviousCA, certs.KeyCert, certs.KeyCertKey} {
		dir := t.TempDir()
		if _, err := certificate(dir, day); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(file.Truncate(1<<40), file.Close()); err != nil {
			t.Fatal(err)
		}
		c, err := certificate(dir, day)
		if err != nil {
			t.Errorf("%s of a terabyte: %v", name, err)
			continue
		}
		if info, err := os.Stat(path + ".broken"); err != nil || info.Size() != 1<<40 {
			t.Errorf("%s is not put aside: %v", name, err)
		}
		next, err := certificate(dir, day)
		if err != nil || !bytes.Equal(serves(t, c), serves(t, next)) || !bytes.Equal(c.CA(), next.CA()) {
			t.Errorf("%s: what was made anew was not kept: %v", name, err)
		}
	}
}

// Where a renewal that is due cannot be written, what was kept serves until it ends.
func TestARenewalThatCannotBeKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	former, err := certificate(dir, day)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{certs.KeyCA, certs.KeyCert} { // nothing can be written there
		if err := os.Mkdir(filepath.Join(dir, name+".new"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	due := day.Add(75 * 24 * time.Hour)
	c, err := certificate(dir, due)
	if err != nil {
		t.Fatalf("the process does not start: %v", err)
	}
	if !bytes.Equal(serves(t, c), serves(t, former)) || !bytes.Equal(c.CA(), former.CA()) {
		t.Error("it serves with another certificate than was kept")
	}
	if _, err := certificate(dir, day.Add(91*24*time.Hour)); err == nil {
		t.Error("it serves with a certificate that has ended")
	}
	if _, err := certificate(filepath.Join(dir, certs.KeyCert), day); err == nil {
		t.Error("it serves with none")
	}
}

// Clients that ask for a name of the signed certificate get that; all others, and these while there is none, get the server's own.
func TestASignedCertificateGoesFirstForItsNames(t *testing.T) {
	t.Parallel()
	signed := &tls.Certificate{Leaf: &x509.Certificate{DNSNames: []string{"agent.svc"}}}
	there := true
	c, err := frontdoor.NewCertificate(frontdoor.CertificateOptions{
		DNSNames: []string{"localhost"}, Clock: clocktesting.NewFakeClock(day), Log: logr.Discard(),
		Signed: func(name string) *tls.Certificate {
			if !there || signed.Leaf.VerifyHostname(name) != nil {
				return nil
			}
			return signed
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"agent.svc": true, "localhost": false, "": false, "other.agent.svc": false} {
		for _, there = range []bool{true, false} {
			got, err := c.TLS().GetCertificate(&tls.ClientHelloInfo{ServerName: name})
			if err != nil || (got == signed) != (want && there) {
				t.Errorf("%q, signed %t: another certificate, %v", name, there, err)
			}
		}
	}
}
