// Package certrequest gets the agent a serving certificate that the controller signs, so that clients on other machines
// can verify the agent.
package certrequest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/keptfile"
	"github.com/mainspring-rt/mainspring/pkg/servingcert"
)

const (
	// fileName of the key and the certificate that are kept, in PEM.
	fileName = "signed.pem"
	// maxFile is the longest file in bytes: several times what ours has.
	maxFile = 64 << 10
	// maxCertificate is the longest certificate in bytes that is taken from the API server.
	maxCertificate = 32 << 10
	// pollAtFirst and pollAtMost are how often the agent looks whether its request is decided: less and less often, as
	// the controller may not run.
	pollAtFirst, pollAtMost = 2 * time.Second, time.Minute
	// retryAfterError is how long the agent waits after an error of the API server, and at least between two certificates.
	retryAfterError = time.Minute
	// retryAfterRefusal is how long it waits with the next request after one was refused: what was wrong with it has to be mended elsewhere.
	retryAfterRefusal = time.Hour
	// renewEvery is how long a certificate is used before the next is requested, also where it would last longer: the
	// authority that has signed it may be gone from the bundle, as where its Secret was deleted.
	renewEvery = 24 * time.Hour
	// jitterFactor of all waits: agents that were installed at once do not stay in step.
	jitterFactor = 0.2
)

// API is what a Requester does at the API server. Errors are those of the API.
type API interface {
	// CreateSigningRequest returns the name that the API server has generated.
	CreateSigningRequest(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (string, error)
	// SigningRequest returns a request.
	SigningRequest(ctx context.Context, name string) (*certificatesv1.CertificateSigningRequest, error)
}

// Options of a Requester. All are required.
type Options struct {
	// Service is the DNS name of the agents' Service, Node the name of this node.
	Service, Node string
	// Dir keeps the certificate and its key for the next process.
	Dir   string
	API   API
	Clock clock.Clock
	Log   logr.Logger
}

// Requester requests a certificate when it starts and every day, or when a third of its time is left. It keeps the last
// one, which serves until the next is signed.
type Requester struct {
	options Options
	current atomic.Pointer[tls.Certificate]
	pending *pending
	renewAt time.Time
}

// pending is a request that is not decided. Its key is in memory alone: the next process makes another request.
type pending struct {
	key  *ecdsa.PrivateKey
	name string
	poll time.Duration
}

// New returns a Requester with the certificate of the process before, if it was kept and has not ended.
func New(o Options) *Requester {
	r := &Requester{options: o, renewAt: o.Clock.Now()}
	kept, err := keptfile.Read(r.file(), maxFile)
	if err == nil {
		err = r.use(kept, kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.Log.Error(err, "the certificate that was kept cannot be used; requesting another", "file", r.file())
	}
	return r
}

func (r *Requester) file() string { return filepath.Join(r.options.Dir, fileName) }

// Certificate returns the certificate for a name that a client asks for; nil without one that has not ended.
func (r *Requester) Certificate(serverName string) *tls.Certificate {
	c := r.current.Load()
	if c == nil || c.Leaf.VerifyHostname(serverName) != nil || r.options.Clock.Now().After(c.Leaf.NotAfter) {
		return nil
	}
	return c
}

// Start requests and renews until ctx ends.
func (r *Requester) Start(ctx context.Context) error {
	for {
		timer := r.options.Clock.NewTimer(wait.Jitter(r.step(ctx), jitterFactor))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// step does what there is to do now, and returns how long there is nothing to do.
func (r *Requester) step(ctx context.Context) time.Duration {
	if left := r.renewAt.Sub(r.options.Clock.Now()); left > 0 {
		return left
	}
	next, err := r.request(ctx)
	if err != nil && ctx.Err() == nil {
		r.options.Log.Error(err, "requesting a serving certificate; trying on", "in", next.String())
	}
	return next
}

// request makes a request, or looks at the one that was made.
func (r *Requester) request(ctx context.Context) (time.Duration, error) {
	if r.pending == nil {
		return r.create(ctx)
	}
	csr, err := r.options.API.SigningRequest(ctx, r.pending.name)
	if apierrors.IsNotFound(err) { // kube-controller-manager removes a request that is not decided for a day
		r.pending = nil
		return pollAtFirst, nil
	}
	if err != nil {
		return retryAfterError, fmt.Errorf("getting CertificateSigningRequest %s: %w", r.pending.name, err)
	}
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			r.pending = nil
			return retryAfterRefusal, fmt.Errorf("CertificateSigningRequest %s: %s: %.500s", csr.Name, c.Type, c.Message)
		}
	}
	if len(csr.Status.Certificate) == 0 {
		r.pending.poll = min(2*r.pending.poll, pollAtMost)
		return r.pending.poll, nil
	}
	key := r.pending.key
	r.pending = nil
	if err := r.take(key, csr.Status.Certificate); err != nil {
		return retryAfterError, fmt.Errorf("CertificateSigningRequest %s: %w", csr.Name, err)
	}
	until := r.current.Load().Leaf.NotAfter
	r.options.Log.Info("The controller has signed the serving certificate", "CertificateSigningRequest", csr.Name, "until", until.Format(time.RFC3339))
	// By this clock, whatever the controller's says: where they differ by more than the certificate's time, requests
	// follow each other no faster than after errors.
	left := max(retryAfterError, min(renewEvery, until.Sub(r.options.Clock.Now())*2/3))
	r.renewAt = r.options.Clock.Now().Add(left)
	return left, nil
}

func (r *Requester) create(ctx context.Context) (time.Duration, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return retryAfterError, fmt.Errorf("making a key: %w", err)
	}
	request, err := servingcert.NewRequest(key, r.options.Service, r.options.Node)
	if err != nil {
		return retryAfterError, err
	}
	name, err := r.options.API.CreateSigningRequest(ctx, &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "mainspring-agent-"},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: servingcert.SignerName, Usages: servingcert.Usages()},
	})
	if err != nil {
		return retryAfterError, fmt.Errorf("creating a CertificateSigningRequest: %w", err)
	}
	r.pending = &pending{key: key, name: name, poll: pollAtFirst}
	return pollAtFirst, nil
}

// take keeps a certificate and serves it. One that cannot be kept, as on a disk that is full, is served nevertheless.
func (r *Requester) take(key *ecdsa.PrivateKey, certificate []byte) error {
	if len(certificate) > maxCertificate {
		return fmt.Errorf("the certificate has %d bytes; want %d at most", len(certificate), maxCertificate)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key: %w", err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := r.use(certificate, keyPEM); err != nil {
		return err
	}
	if err := r.keep(append(keyPEM, certificate...)); err != nil {
		r.options.Log.Error(err, "keeping the serving certificate; the next process requests another")
	}
	return nil
}

// use serves a certificate that has not ended, for the names that were asked for.
func (r *Requester) use(certificate, key []byte) error {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	if now := r.options.Clock.Now(); now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("the certificate ended at %s", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	for _, name := range servingcert.DNSNames(r.options.Service, r.options.Node) {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			return fmt.Errorf("the certificate is for other names: %w", err)
		}
	}
	r.current.Store(&pair)
	return nil
}

// keep writes the file in one step.
func (r *Requester) keep(content []byte) error {
	if err := os.MkdirAll(r.options.Dir, 0o700); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	next := r.file() + ".new"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return fmt.Errorf("writing it: %w", err)
	}
	if err := os.Rename(next, r.file()); err != nil {
		return fmt.Errorf("putting it in its place: %w", err)
	}
	return nil
}
