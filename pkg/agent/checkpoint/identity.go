package checkpoint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// identity is the agent's key for speaking with other agents. It is made when the agent starts and never leaves its
// memory; NodeCheckpoints carry the fingerprint of its certificate, which only the agent of the node may write there.
type identity struct {
	certificate tls.Certificate
	fingerprint string
}

// validity of the certificate, which no agent looks at: it is known by its fingerprint.
const validity = 10 * 365 * 24 * time.Hour

func newIdentity(node string, now time.Time) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the agent's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: node}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the agent's certificate: %w", err)
	}
	return &identity{certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, fingerprint: fingerprint(der)}, nil
}

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// shown is the fingerprint of the certificate whose key the other side has proved to hold; empty without one.
func shown(state *tls.ConnectionState) string {
	if state == nil || len(state.PeerCertificates) == 0 {
		return ""
	}
	return fingerprint(state.PeerCertificates[0].Raw)
}

// errStranger means that the other side is not who it should be.
var errStranger = errors.New("the other agent shows another certificate than its NodeCheckpoint says")

// server takes every client that shows a certificate; whose it is decides what the client gets.
func (i *identity) server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate}, ClientAuth: tls.RequireAnyClientCert}
}

// client speaks with the holder of one certificate only.
func (i *identity) client(want string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate},
		InsecureSkipVerify: true, //nolint:gosec // no authority signs these: the certificate is compared with the one that is wanted
		VerifyConnection: func(state tls.ConnectionState) error {
			if want == "" || shown(&state) != want {
				return errStranger
			}
			return nil
		},
	}
}
