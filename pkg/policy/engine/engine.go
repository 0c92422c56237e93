// Package engine asks a policy engine over HTTP, as the SDI Migration Service does: POST <url>/api/v1/migration/policy. An
// engine that is slow, down, or lies about the format costs a question its time, never an answer: only a JSON object
// with a bool "allowed" is one. Answers are kept for a few seconds; after several failures in a row nothing is asked
// for a while.
package engine

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"
	"k8s.io/utils/clock"
)

// Path is where an engine answers, below its address.
const Path = "/api/v1/migration/policy"

const (
	// DefaultTimeout of a question, its second attempt included.
	DefaultTimeout = 2 * time.Second
	// keep is how long an answer is good.
	keep = 10 * time.Second
	// tolerated is how many failures in a row open the circuit, and pause how long it then stays open.
	tolerated = 5
	pause     = 10 * time.Second
	// mostAnswer is how many bytes an answer may have, and mostHeader its header.
	mostAnswer = 64 << 10
	mostHeader = 16 << 10
)

// ErrPaused is the error while nothing is asked, because the engine has failed several times in a row.
var ErrPaused = errors.New("it has failed several times in a row, and is left alone for some seconds")

// Config is how an engine is reached.
type Config struct {
	// URL is http or https, without Path.
	URL string
	// Timeout of a question; 0: DefaultTimeout.
	Timeout time.Duration
	// CABundle are PEM certificates; empty: those of the system.
	CABundle string
	// Token reads the bearer token; nil: none is sent.
	Token func(context.Context) (string, error)
	// Clock tells how old answers are.
	Clock clock.PassiveClock
	// Transport is for tests; nil: one of its own.
	Transport http.RoundTripper
}

// Engine is a policy engine. It is safe for concurrent use.
type Engine struct {
	config  Config
	address string
	client  *http.Client
	breaker *gobreaker.CircuitBreaker[Answer]
	answers answers
}

// New makes the client; it asks nothing.
func New(c Config) (*Engine, error) {
	address, err := url.Parse(c.URL)
	if err != nil || address.Host == "" || address.User != nil || address.Scheme != "http" && address.Scheme != "https" {
		return nil, errors.New("reading the engine's url: it must be http:// or https://, a host and perhaps a path, without user or password")
	}
	if c.Token != nil && address.Scheme != "https" {
		return nil, errors.New("reading the engine's url: a token is only sent over https")
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Transport == nil {
		if c.Transport, err = transport(c); err != nil {
			return nil, err
		}
	}
	return &Engine{
		config:  c,
		address: strings.TrimRight(address.String(), "/") + Path,
		client: &http.Client{
			Transport: c.Transport,
			// Where it would send us, with what we say of the pod and the token, is not what the policy names.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		breaker: gobreaker.NewCircuitBreaker[Answer](gobreaker.Settings{
			Name: address.Host, Timeout: pause,
			ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= tolerated },
			// Whoever no longer wants the answer says nothing about the engine.
			IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		}),
		answers: answers{known: map[key]dated{}},
	}, nil
}

// transport has limits of its own, and no proxy: the address is the one that is asked.
func transport(c Config) (http.RoundTripper, error) {
	verify := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CABundle != "" {
		verify.RootCAs = x509.NewCertPool()
		if !verify.RootCAs.AppendCertsFromPEM([]byte(c.CABundle)) {
			return nil, errors.New("reading the engine's caBundle: it holds no certificate in PEM")
		}
	}
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: c.Timeout}).DialContext,
		TLSClientConfig:        verify,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: mostHeader,
		DisableCompression:     true, // what is small packed may be large
	}, nil
}

// Close lets go of the connections.
func (e *Engine) Close() { e.client.CloseIdleConnections() }

// Ask is the engine's answer, or one it has given to the same question seconds ago. The error says why there is none;
// errors.Is(err, context.DeadlineExceeded) tells that it was too slow.
func (e *Engine) Ask(ctx context.Context, q Question) (Answer, error) {
	if a, ok := e.answers.get(q.key(), e.config.Clock.Now()); ok {
		return a, nil
	}
	bounded, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	a, err := e.breaker.Execute(func() (Answer, error) { return e.ask(bounded, q) })
	switch {
	case errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests):
		return Answer{}, fmt.Errorf("asking the policy engine: %w", ErrPaused)
	case err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded):
		return Answer{}, fmt.Errorf("asking the policy engine: no answer within %s: %w", e.config.Timeout, context.DeadlineExceeded)
	case err != nil:
		return Answer{}, fmt.Errorf("asking the policy engine: %w", err)
	}
	e.answers.put(q.key(), a, e.config.Clock.Now())
	return a, nil
}

// ask tries again, once, when no connection came about: then the engine has not seen the question.
func (e *Engine) ask(ctx context.Context, q Question) (Answer, error) {
	a, err := e.post(ctx, q)
	dialing := &net.OpError{}
	if errors.As(err, &dialing) && dialing.Op == "dial" && ctx.Err() == nil {
		a, err = e.post(ctx, q)
	}
	return a, err
}
