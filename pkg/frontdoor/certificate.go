package frontdoor

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

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
	Clock    clock.WithTicker
	Log      logr.Logger
}

const (
	// certValidity of a certificate that is made here. It is renewed when a third of it is left.
	certValidity = 90 * 24 * time.Hour
	// renewEvery is how often is looked whether it is time.
	renewEvery = time.Minute
	// readEvery is how often the files of a directory are read.
	readEvery = 10 * time.Second
)

// Certificate is the server's, kept up to date while Start runs.
type Certificate struct {
	options CertificateOptions
	served  certs.Server
	data    map[string][]byte
}

// NewCertificate reads the certificate, or makes one.
func NewCertificate(o CertificateOptions) (*Certificate, error) {
	c := &Certificate{options: o}
	if o.Dir != "" {
		return c, c.read()
	}
	var err error
	if c.data, err = readFiles(o.Keep); err != nil {
		return nil, err
	}
	return c, c.renew()
}

// TLS is the configuration of a server with the certificate.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{GetCertificate: c.served.GetCertificate, MinVersion: tls.VersionTLS12}
}

// CA is what clients verify a certificate with that was made here; nil for one of a directory.
func (c *Certificate) CA() []byte {
	if c.options.Dir != "" {
		return nil
	}
	return certs.Bundle(c.data)
}

// Start keeps it up to date until ctx ends.
func (c *Certificate) Start(ctx context.Context) error {
	every, update := renewEvery, c.renew
	if c.options.Dir != "" {
		every, update = readEvery, c.read
	}
	ticker := c.options.Clock.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			if err := update(); err != nil {
				c.options.Log.Error(err, "keeping the certificate up to date; trying on with the one there is")
			}
		}
	}
}

// NeedLeaderElection is false: every replica of a controller serves.
func (c *Certificate) NeedLeaderElection() bool { return false }

// read takes the certificate of the directory. One that is half written, so that the key is another's, is an error, and
// changes nothing.
func (c *Certificate) read() error {
	now := map[string][]byte{}
	for _, name := range []string{certs.KeyCert, certs.KeyCertKey} {
		content, err := os.ReadFile(filepath.Join(c.options.Dir, name))
		if err == nil && len(content) == 0 {
			err = fmt.Errorf("%s is empty", name)
		}
		if err != nil {
			return fmt.Errorf("reading the certificate in %s: %w", c.options.Dir, err)
		}
		now[name] = content
	}
	if maps.EqualFunc(now, c.data, bytes.Equal) {
		return nil
	}
	if _, err := c.served.Set(now); err != nil {
		return fmt.Errorf("reading the certificate in %s: %w", c.options.Dir, err)
	}
	c.data = now
	return nil
}

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
	_, err = c.served.Set(next)
	return err
}

var files = []string{certs.KeyCA, certs.KeyCAKey, certs.KeyPreviousCA, certs.KeyCert, certs.KeyCertKey}

func readFiles(dir string) (map[string][]byte, error) {
	data := map[string][]byte{}
	if dir == "" {
		return data, nil
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
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
