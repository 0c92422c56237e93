package certrequest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	service  = "agent.system.svc"
	validity = 30 * 24 * time.Hour
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// signer is an API server with a controller that signs when it is told to.
type signer struct {
	t        *testing.T
	clock    *clocktesting.FakeClock
	fault    error
	validity time.Duration
	requests map[string]*certificatesv1.CertificateSigningRequest
}

func (s *signer) CreateSigningRequest(_ context.Context, csr *certificatesv1.CertificateSigningRequest) (string, error) {
	if s.fault != nil {
		return "", s.fault
	}
	name := csr.GenerateName + string(rune('a'+len(s.requests)))
	s.requests[name] = csr.DeepCopy()
	return name, nil
}

func (s *signer) SigningRequest(_ context.Context, name string) (*certificatesv1.CertificateSigningRequest, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	if csr := s.requests[name]; csr != nil {
		return csr.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "certificatesigningrequests"}, name)
}

// sign signs every request for its own names, or for others.
func (s *signer) sign(names ...string) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, csr := range s.requests {
		block, _ := pem.Decode(csr.Spec.Request)
		asked, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			s.t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, DNSNames: asked.DNSNames, NotBefore: s.clock.Now().Add(-time.Hour), NotAfter: s.clock.Now().Add(s.validity),
		}
		if len(names) > 0 {
			template.DNSNames = names
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, asked.PublicKey, key)
		if err != nil {
			s.t.Fatal(err)
		}
		csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
}

func newSigner(t *testing.T) *signer {
	return &signer{t: t, validity: validity, clock: clocktesting.NewFakeClock(start), requests: map[string]*certificatesv1.CertificateSigningRequest{}}
}

func (s *signer) requester(dir string) *Requester {
	return New(Options{Service: service, Node: "node", Dir: dir, API: s, Clock: s.clock, Log: logr.Discard()})
}

// expectStep takes a step and expects how long there is nothing to do after it.
func expectStep(t *testing.T, r *Requester, want time.Duration) {
	t.Helper()
	if got := r.step(t.Context()); got != want {
		t.Errorf("the next step is in %s; want %s", got, want)
	}
}

func serial(t *testing.T, r *Requester, name string) []byte {
	t.Helper()
	c := r.Certificate(name)
	if c == nil {
		return nil
	}
	return c.Leaf.Raw
}

func TestACertificateIsRequestedKeptAndRenewed(t *testing.T) {
	s, dir := newSigner(t), t.TempDir()
	r := s.requester(dir)
	expectStep(t, r, pollAtFirst) // requested
	expectStep(t, r, 2*pollAtFirst)
	expectStep(t, r, 4*pollAtFirst)
	if serial(t, r, service) != nil {
		t.Error("there is a certificate before one was signed")
	}
	s.sign()
	expectStep(t, r, renewEvery)
	expectStep(t, r, renewEvery)
	first := serial(t, r, service)
	if first == nil || serial(t, r, "node."+service) == nil || serial(t, r, "localhost") != nil || serial(t, r, "") != nil {
		t.Error("the certificate is not for the Service and the node below it alone")
	}
	if info, err := os.Stat(filepath.Join(dir, fileName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is kept as %v, %v; want it to be the agent's alone", info, err)
	}
	next := s.requester(dir)
	if string(serial(t, next, service)) != string(first) || len(s.requests) != 1 {
		t.Error("the next process does not serve what was kept")
	}
	// Its authority may be gone by now.
	expectStep(t, next, pollAtFirst)
	if len(s.requests) != 2 || string(serial(t, next, service)) != string(first) {
		t.Error("the next process does not request a certificate while it serves the one before")
	}
	s.sign()
	expectStep(t, next, renewEvery)
	if string(serial(t, next, service)) == string(first) {
		t.Error("the renewed certificate does not serve")
	}
	s.clock.Step(renewEvery - time.Minute)
	expectStep(t, next, time.Minute)
	s.clock.Step(time.Minute)
	if expectStep(t, next, pollAtFirst); len(s.requests) != 3 {
		t.Error("it is not renewed after a day")
	}
	s.clock.SetTime(start.Add(2 * validity))
	if serial(t, next, service) != nil || serial(t, s.requester(dir), service) != nil {
		t.Error("a certificate serves after its end")
	}
}

func TestRequestsThatAreNotSigned(t *testing.T) {
	s := newSigner(t)
	r := s.requester(t.TempDir())
	s.fault = errors.New("away")
	expectStep(t, r, retryAfterError)
	s.fault = nil
	expectStep(t, r, pollAtFirst)
	for range 10 {
		r.step(t.Context())
	}
	expectStep(t, r, pollAtMost) // no controller runs: one request, looked at less and less often
	if len(s.requests) != 1 {
		t.Errorf("%d requests are made while one is not decided", len(s.requests))
	}
	clear(s.requests) // a day later
	expectStep(t, r, pollAtFirst)
	expectStep(t, r, pollAtFirst)
	for _, csr := range s.requests {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Message: "no"}}
	}
	expectStep(t, r, retryAfterRefusal)
	clear(s.requests)
	expectStep(t, r, pollAtFirst)
	s.sign("other.svc")
	expectStep(t, r, retryAfterError)
	if serial(t, r, service) != nil || serial(t, r, "other.svc") != nil {
		t.Error("a certificate for other names serves")
	}
}

// A certificate is renewed when a third of its time is left by the agent's clock. Whatever the controller's clock says,
// requests do not follow each other without a pause.
func TestACertificateOfAShortTime(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{0: 20 * time.Minute, -time.Hour: time.Hour, 25 * time.Minute: 200 * time.Second, 29 * time.Minute: retryAfterError} {
		s := newSigner(t)
		s.validity = 30 * time.Minute
		r := s.requester(t.TempDir())
		expectStep(t, r, pollAtFirst)
		s.sign()
		s.clock.Step(ahead)
		expectStep(t, r, want)
	}
}

// Whatever has become of the file, the agent starts and requests another certificate. A directory that cannot be
// written keeps no certificate from serving.
func TestAKeptCertificateThatIsBroken(t *testing.T) {
	for what, content := range map[string][]byte{"empty": {}, "no PEM": []byte("x"), "long": make([]byte, maxFile+1)} {
		s, dir := newSigner(t), t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), content, 0o600); err != nil {
			t.Fatal(err)
		}
		r := s.requester(dir)
		expectStep(t, r, pollAtFirst)
		s.sign()
		if expectStep(t, r, renewEvery); serial(t, r, service) == nil || serial(t, s.requester(dir), service) == nil {
			t.Errorf("%s: the certificate does not serve, or is not kept", what)
		}
	}
	s, dir := newSigner(t), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.requester(dir)
	expectStep(t, r, pollAtFirst)
	s.sign()
	if expectStep(t, r, renewEvery); serial(t, r, service) == nil {
		t.Error("a certificate that cannot be kept does not serve")
	}
}
