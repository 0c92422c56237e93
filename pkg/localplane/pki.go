package localplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

const (
	certificateLife = 365 * 24 * time.Hour
	clockSkew       = time.Hour
	// serviceRange is the range of Service addresses; its first one is the API server's.
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
)

// authority is a certificate authority: its certificate and key.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
	now         time.Time
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

func newAuthority(name string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of %s: %w", name, err)
	}
	template, err := newTemplate(pkix.Name{CommonName: name}, now)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back %s: %w", name, err)
	}
	return &authority{certificate: certificate, key: key, pem: encode("CERTIFICATE", der), now: now}, nil
}

// client issues a certificate for a user and its groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	return a.issue(pkix.Name{CommonName: user, Organization: groups}, func(t *x509.Certificate) {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
}

// server issues a certificate for everything that listens on loopback. Members of etcd use it
// in both directions.
func (a *authority) server(name string) (pair, error) {
	return a.issue(pkix.Name{CommonName: name}, func(t *x509.Certificate) {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		t.IPAddresses = []net.IP{net.ParseIP(loopback), net.ParseIP(serviceIP)}
		t.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	})
}

func (a *authority) issue(subject pkix.Name, shape func(*x509.Certificate)) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("generating the key of %s: %w", subject.CommonName, err)
	}
	template, err := newTemplate(subject, a.now)
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	shape(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w", subject.CommonName, err)
	}
	keyPEM, err := encodeKey(key)
	return pair{cert: encode("CERTIFICATE", der), key: keyPEM}, err
}

func newTemplate(subject pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, BasicConstraintsValid: true,
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(certificateLife),
	}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

// newTokenKeys makes the key pair that signs and verifies ServiceAccount tokens.
func newTokenKeys() (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("generating the token key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return pair{}, fmt.Errorf("encoding the token key: %w", err)
	}
	private, err := encodeKey(key)
	return pair{cert: encode("PUBLIC KEY", public), key: private}, err
}

// write puts the pair in files that only the owner reads.
func (p pair) write(certPath, keyPath string) error {
	if err := os.WriteFile(certPath, p.cert, 0o600); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}
	if err := os.WriteFile(keyPath, p.key, 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	return nil
}
