package webhooks

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// With an authority of API servers, a client without its certificate is not even asked for a path.
func TestOnlyClientsOfTheAuthorityComeIn(t *testing.T) {
	authority := certs.Authority{DNSNames: []string{"localhost"}, Validity: 24 * time.Hour}
	data, _, err := authority.Renew(nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	served := &certs.Server{}
	if _, err := served.Set(data); err != nil {
		t.Fatal(err)
	}
	theirs, clientCA := clientCertificate(t)
	config, err := tlsConfig(served, clientCA)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	ended := make(chan error, 1)
	go func() {
		ended <- frontdoor.Bounded(listener, config, ok, serverLimits(), logr.Discard()).Start(t.Context())
	}()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data[certs.KeyCA])
	get := func(certificates ...tls.Certificate) error {
		c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost", Certificates: certificates, MinVersion: tls.VersionTLS12},
		}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listener.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	if err := get(theirs); err != nil {
		t.Errorf("the API server: %v", err)
	}
	stranger, _ := clientCertificate(t)
	if get() == nil || get(stranger) == nil {
		t.Error("a stranger comes in")
	}
	if _, err := tlsConfig(served, []byte("no certificate")); err == nil {
		t.Error("an authority without a certificate lets everybody in")
	}
}

// clientCertificate makes an authority and a client certificate of it.
func clientCertificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
