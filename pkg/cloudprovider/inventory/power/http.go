package power

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	// maxBody bounds what is read of an answer.
	maxBody = 1 << 20
	// idleTimeout ends connections that nothing is asked on.
	idleTimeout = 30 * time.Second
	keyCA       = "ca.crt"
)

// newHTTPClient trusts the certificates that the reference names, or those of the system. It follows redirects
// of what is only read, and only on the same host: others would take credentials elsewhere, or switch twice.
func (d Dialer) newHTTPClient(ctx context.Context, ca *v1alpha1.SecretRef) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != nil {
		pem, err := d.key(ctx, *ca, keyCA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(pem)) {
			return nil, fmt.Errorf("%w: key %s of Secret %q holds no certificate", ErrConfig, keyCA, ca.Name)
		}
	}
	return &http.Client{
		// No proxy: what switches machines is near them, and a proxy would see the credentials.
		Transport:     &http.Transport{TLSClientConfig: config, IdleConnTimeout: idleTimeout, DisableKeepAlives: true, ForceAttemptHTTP2: false},
		CheckRedirect: sameHost,
	}, nil
}

// mostRedirects is how many redirects in a row are followed.
const mostRedirects = 3

// sameHost follows redirects of GET on one host.
func sameHost(next *http.Request, before []*http.Request) error {
	first := before[0]
	if first.Method != http.MethodGet || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host || len(before) > mostRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// answer is what the other side has answered.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// into decodes the answer's JSON.
func (a *answer) into(v any) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("decoding an answer: %w", err)
	}
	return nil
}

// roundTrip sends a request and reads the answer.
func roundTrip(client *http.Client, req *http.Request) (*answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, transportError(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s %s: %w", req.Method, req.URL.Redacted(), err)
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: body}, nil
}

// transportError tells a certificate that cannot be trusted, which needs a person, from a line that is down.
func transportError(err error) error {
	certificate := (*tls.CertificateVerificationError)(nil)
	if errors.As(err, &certificate) {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return err
}

// jsonRequest is a request with a body in JSON; body nil is none.
func jsonRequest(ctx context.Context, method, url string, body any) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// refused is the error for an answer that is not a success.
func refused(req *http.Request, a *answer, detail string) error {
	err := fmt.Errorf("%s %s answered %d %s", req.Method, req.URL.Redacted(), a.status, http.StatusText(a.status))
	if detail != "" {
		err = fmt.Errorf("%w: %.200s", err, detail)
	}
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", ErrCredentials, err)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return err
}
