package certs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

const validity = 30 * 24 * time.Hour

var authority = certs.Authority{DNSNames: []string{"webhook.system.svc", "localhost"}, Validity: validity}

func renew(t *testing.T, data map[string][]byte, now time.Time) (map[string][]byte, bool) {
	t.Helper()
	next, changed, err := authority.Renew(data, now)
	if err != nil {
		t.Fatal(err)
	}
	return next, changed
}

// handshake is one of an API server that knows bundle with a server that uses data, at a time.
func handshake(t *testing.T, bundle []byte, data map[string][]byte, name string, now time.Time) error {
	t.Helper()
	server := &certs.Server{}
	if _, err := server.Set(data); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	clock := func() time.Time { return now }
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		tls.Server(ours, &tls.Config{GetCertificate: server.GetCertificate, Time: clock, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx) //nolint:errcheck // the client tells
		ours.Close()
	}()
	return tls.Client(theirs, &tls.Config{RootCAs: roots, ServerName: name, Time: clock, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
}

func TestTheFirstCertificateServesEveryName(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, changed := renew(t, nil, now)
	if !changed {
		t.Fatal("nothing was made")
	}
	for _, name := range authority.DNSNames {
		if err := handshake(t, certs.Bundle(data), data, name, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := handshake(t, certs.Bundle(data), data, "example.com", now); err == nil {
		t.Error("it serves a name that is not ours")
	}
	if _, again := renew(t, data, now.Add(validity/2)); again {
		t.Error("it is renewed at half its time")
	}
}

// Five years of looks at the Secret, days apart: API servers that know the bundle of the look before
// always accept what is served now.
func TestRotationNeverBreaksACall(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, _ := renew(t, nil, now)
	known := certs.Bundle(data)
	servers, authorities, years := 0, 0, sampling.Count(2, 5)
	for end := now.AddDate(years, 0, 0); now.Before(end); {
		before := data
		data, _ = renew(t, data, now)
		if err := handshake(t, known, data, "localhost", now); err != nil {
			t.Fatalf("%s: what was known a look ago: %v", now, err)
		}
		known = certs.Bundle(data)
		if !bytes.Equal(before[certs.KeyCert], data[certs.KeyCert]) {
			servers++
		}
		if !bytes.Equal(before[certs.KeyCA], data[certs.KeyCA]) {
			authorities++
			now = now.Add(time.Minute)
			continue
		}
		now = now.Add(5 * 24 * time.Hour)
	}
	if servers < 12*years || authorities < years {
		t.Errorf("%d server certificates and %d authorities in %d years", servers, authorities, years)
	}
}

func TestABrokenSecretIsReplaced(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good, _ := renew(t, nil, now)
	for _, key := range []string{certs.KeyCA, certs.KeyCAKey, certs.KeyCert, certs.KeyCertKey} {
		broken, _ := renew(t, nil, now)
		for k, v := range good {
			broken[k] = v
		}
		broken[key] = []byte("nonsense")
		fixed, changed := renew(t, broken, now)
		if !changed {
			t.Errorf("%s: nothing was made", key)
		}
		if err := handshake(t, certs.Bundle(fixed), fixed, "localhost", now); key != certs.KeyCAKey && err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestOtherNamesMakeAnotherCertificate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data, _ := renew(t, nil, now)
	more := certs.Authority{DNSNames: append([]string{"more.svc"}, authority.DNSNames...), Validity: validity}
	next, changed, err := more.Renew(data, now)
	if err != nil || !changed || !bytes.Equal(next[certs.KeyCA], data[certs.KeyCA]) {
		t.Fatalf("changed %t, %v", changed, err)
	}
	if err := handshake(t, certs.Bundle(data), next, "more.svc", now); err != nil {
		t.Error(err)
	}
	if _, _, err := (certs.Authority{Validity: validity}).Renew(nil, now); err == nil {
		t.Error("a certificate without a name is made")
	}
}

func TestServerIsReadyWhileItsCertificateIsValid(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server := &certs.Server{}
	if _, err := server.Set(map[string][]byte{}); err != nil {
		t.Error(err)
	}
	if err := server.Ready(now); err == nil || !strings.Contains(err.Error(), "no certificate yet") {
		t.Errorf("without a certificate: %v", err)
	}
	data, _ := renew(t, nil, now)
	end, err := server.Set(data)
	if err != nil || !end.Equal(now.Add(validity)) || server.Ready(now) != nil {
		t.Errorf("ends %s, %v, %v", end, err, server.Ready(now))
	}
	if err := server.Ready(end.Add(time.Second)); err == nil || !strings.Contains(err.Error(), "ended at 2026-01-31") {
		t.Errorf("after its end: %v", err)
	}
	if _, err := server.Set(map[string][]byte{certs.KeyCert: []byte("x")}); err == nil {
		t.Error("nonsense is accepted")
	}
	if server.Ready(now) != nil {
		t.Error("nonsense takes the place of a certificate")
	}
}
