package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Server holds the certificate that a server uses now. Many may use it at once.
type Server struct {
	current atomic.Pointer[tls.Certificate]
}

// Set takes the certificate from a Secret's data and returns when it ends. A Secret without one, which
// the leader has not filled yet, changes nothing and ends at the zero time.
func (s *Server) Set(data map[string][]byte) (time.Time, error) {
	if len(data[KeyCert]) == 0 {
		return time.Time{}, nil
	}
	pair, err := tls.X509KeyPair(data[KeyCert], data[KeyCertKey])
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the webhooks' certificate: %w", err)
	}
	s.current.Store(&pair)
	return pair.Leaf.NotAfter, nil
}

// GetCertificate is for tls.Config.
func (s *Server) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("the webhooks have no certificate yet")
}

// Ready is nil while there is a certificate that is valid at the given time.
func (s *Server) Ready(now time.Time) error {
	c, err := s.GetCertificate(nil)
	if err != nil {
		return err
	}
	if now.After(c.Leaf.NotAfter) {
		return fmt.Errorf("the webhooks' certificate ended at %s", c.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}
