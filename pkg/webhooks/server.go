package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// serverLimits fit a few API servers that keep their connections and review hundreds of pods at once. All of them may come
// from one address, that of a konnectivity agent. A review holds two objects of at most 3 MiB; its handler bounds the body.
func serverLimits() frontdoor.Limits {
	return frontdoor.Limits{
		Connections: 1024, OfAddress: 512,
		Header: 5 * time.Second, Read: 10 * time.Second, Write: 30 * time.Second, Idle: 90 * time.Second,
	}
}

// server answers API servers that know its secret path. It implements manager.Runnable on every replica.
type server struct {
	address string
	tls     *tls.Config
	handler http.Handler
	log     logr.Logger
}

// tlsConfig serves the certificate. With clientCA, PEM certificates, only clients whose certificate it signed come in.
func tlsConfig(certificates *certs.Server, clientCA []byte) (*tls.Config, error) {
	config := &tls.Config{GetCertificate: certificates.GetCertificate, MinVersion: tls.VersionTLS12}
	if len(clientCA) == 0 {
		return config, nil
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(clientCA) {
		return nil, errors.New("reading the authority of API servers' client certificates: it has no PEM certificate")
	}
	return config, nil
}

// newServer makes the server of the handlers.
func newServer(o Options, config *tls.Config, token *pathToken, handlers Handlers, log logr.Logger) *server {
	mux := http.NewServeMux()
	// Only its registration is used, which counts requests under controller-runtime's metric names.
	handlers.Register(webhook.NewServer(webhook.Options{WebhookMux: mux}))
	return &server{address: net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), tls: config, handler: token.require(mux), log: log}
}

// Start serves until ctx ends.
func (s *server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("listening for the webhooks: %w", err)
	}
	return frontdoor.Bounded(listener, s.tls, s.handler, serverLimits(), s.log).Start(ctx)
}

// NeedLeaderElection is false: every replica answers.
func (s *server) NeedLeaderElection() bool { return false }
