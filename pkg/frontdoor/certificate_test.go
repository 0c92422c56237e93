package frontdoor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// A certificate that somebody else renews is served soon after; what is half written is not.
func TestTheCertificateOfADirectoryIsReadAgain(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	authority := certs.Authority{DNSNames: []string{"localhost"}, Validity: time.Hour}
	first, _, err := authority.Renew(nil, clk.Now())
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := authority.Renew(nil, clk.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(data map[string][]byte, names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), data[name], 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := frontdoor.NewCertificate(frontdoor.CertificateOptions{Dir: dir, Clock: clk, Log: logr.Discard()}); err == nil {
		t.Error("a directory without a certificate is taken")
	}
	put(first, certs.KeyCert, certs.KeyCertKey)
	c, err := frontdoor.NewCertificate(frontdoor.CertificateOptions{Dir: dir, Clock: clk, Log: logr.Discard()})
	if err != nil || c.CA() != nil {
		t.Fatalf("%v, authority %q", err, c.CA())
	}
	served := func() []byte {
		t.Helper()
		pair, err := c.TLS().GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Certificate[0]
	}
	before := string(served())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	step := func() {
		for !clk.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clk.Step(10 * time.Second)
	}
	put(second, certs.KeyCert) // whose key comes later
	step()
	put(second, certs.KeyCertKey)
	for began := time.Now(); string(served()) == before; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the other certificate is not served")
		}
		step()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
