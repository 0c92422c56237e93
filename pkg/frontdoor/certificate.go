package frontdoor

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/mainspring-rt/mainspring/pkg/keptfile"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// CertificateOptions say where the certificate comes from.
type CertificateOptions struct {
	// Dir holds tls.crt and tls.key, as a mounted Secret does; they are read again when they change. Empty:
	// the certificate is made here, by an authority of its own.
	Dir string
	// Keep is the directory in which what is made here outlives the process: ca.crt there is what clients
	// verify it with. Empty: it does not.
	Keep string
	// DNSNames of a certificate that is made here; at least one.
	DNSNames []string
	// Signed returns a certificate of another authority for a name that a client asks for; nil: there is none. It goes
	// before the certificate above.
	Signed func(serverName string) *tls.Certificate
	Clock  clock.WithTicker
	Log    logr.Logger
}

const (
	// certValidity of a certificate that is made here. It is renewed when a third of it is left.
	certValidity = 90 * 24 * time.Hour
	// renewEvery is how often is looked whether it is time.
	renewEvery = time.Minute
)

// Certificate is the server's, kept up to date while Start runs.
type Certificate struct {
	options CertificateOptions
	watcher *certwatcher.CertWatcher // nil: made here
	made    certs.Server
	data    map[string][]byte
}

// NewCertificate reads the certificate, or makes one.
func NewCertificate(o CertificateOptions) (*Certificate, error) {
	c := &Certificate{options: o}
	if o.Dir != "" {
		watcher, err := certwatcher.New(filepath.Join(o.Dir, certs.KeyCert), filepath.Join(o.Dir, certs.KeyCertKey))
		if err != nil {
			return nil, fmt.Errorf("reading the certificate in %s: %w", o.Dir, err)
		}
		c.watcher = watcher
		return c, nil
	}
	var err error
	if c.data, err = readFiles(o.Keep, o.Log); err != nil {
		return nil, err
	}
	if err := c.renew(); err != nil {
		return c, c.goOn(err)
	}
	return c, nil
}

// goOn serves with what was kept, as long as that is valid, when it cannot be renewed: on a disk that is full nothing new can be kept. Start tries
// again.
func (c *Certificate) goOn(fault error) error {
	if _, err := c.made.Set(c.data); err != nil || c.made.Ready(c.options.Clock.Now()) != nil {
		return fault
	}
	c.options.Log.Error(fault, "renewing the certificate; going on with the one that was kept")
	return nil
}

// TLS is the configuration of a server with the certificate.
func (c *Certificate) TLS() *tls.Config {
	get := c.made.GetCertificate
	if c.watcher != nil {
		get = c.watcher.GetCertificate
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if c.options.Signed != nil {
			if signed := c.options.Signed(hello.ServerName); signed != nil {
				return signed, nil
			}
		}
		return get(hello)
	}}
}

// CA is what clients verify a certificate with that was made here; nil for one of a directory.
func (c *Certificate) CA() []byte {
	if c.watcher != nil {
		return nil
	}
	return certs.Bundle(c.data)
}

// Start keeps it up to date until ctx ends.
func (c *Certificate) Start(ctx context.Context) error {
	if c.watcher != nil {
		return c.watcher.Start(ctx)
	}
	ticker := c.options.Clock.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			if err := c.renew(); err != nil {
				c.options.Log.Error(err, "renewing the certificate; trying on")
			}
		}
	}
}

// NeedLeaderElection is false: every replica of a controller serves.
func (c *Certificate) NeedLeaderElection() bool { return false }

func (c *Certificate) renew() error {
	authority := certs.Authority{DNSNames: c.options.DNSNames, Validity: certValidity}
	next, changed, err := authority.Renew(c.data, c.options.Clock.Now())
	if err != nil {
		return err
	}
	if changed {
		if err := writeFiles(c.options.Keep, c.data, next); err != nil {
			return err
		}
	}
	c.data = next
	_, err = c.made.Set(next)
	return err
}

var files = []string{certs.KeyCA, certs.KeyCAKey, certs.KeyPreviousCA, certs.KeyCert, certs.KeyCertKey}

// maxKept is the most bytes that one of them has: several times of what ours are.
const maxKept = 64 << 10

// readFiles reads what was kept. A file that is too long is none of ours: it is put aside, and what it should hold is made anew.
func readFiles(dir string, log logr.Logger) (map[string][]byte, error) {
	data := map[string][]byte{}
	if dir == "" {
		return data, nil
	}
	for _, name := range files {
		path := filepath.Join(dir, name)
		content, err := keptfile.Read(path, maxKept)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, keptfile.ErrTooLong) {
			log.Error(err, "a file of the certificate that was kept is put aside", "as", path+".broken", "fault", os.Rename(path, path+".broken"))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the certificate that was kept: %w", err)
		}
		data[name] = content
	}
	return data, nil
}

// writeFiles replaces what differs, each file in one step. What is half written is made anew by the next
// process: certs.Authority judges the files together.
func writeFiles(dir string, before, now map[string][]byte) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keeping the certificate: %w", err)
	}
	for _, name := range files {
		if bytes.Equal(before[name], now[name]) {
			continue
		}
		next := filepath.Join(dir, name+".new")
		if err := os.WriteFile(next, now[name], 0o600); err != nil {
			return fmt.Errorf("keeping the certificate: %w", err)
		}
		if err := os.Rename(next, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("keeping the certificate: %w", err)
		}
	}
	return nil
}
