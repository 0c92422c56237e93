package frontdoor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Options of a Server. Listener, TLS, Judge and Clock are required.
type Options struct {
	// Listener to serve on; the server closes it.
	Listener net.Listener
	// TLS has the certificate.
	TLS *tls.Config
	// Judge says who may come in.
	Judge *Judge
	Clock clock.PassiveClock
	Log   logr.Logger
	// Limits replaces DefaultLimits.
	Limits *Limits
}

// Limits bound what clients may take.
type Limits struct {
	// Body is the longest body in bytes.
	Body int64
	// Connections at once, and those of one address.
	Connections, OfAddress int
	// PerSecond and Burst are requests of one client, which is an address: who it is costs a TokenReview.
	PerSecond float64
	Burst     int
	// Header, Read, Write and Idle are how long these may take.
	Header, Read, Write, Idle time.Duration
}

// DefaultLimits fit messages of a hundred bytes that come now and then.
func DefaultLimits() Limits {
	return Limits{
		Body: 4 << 10, Connections: 128, OfAddress: 64, PerSecond: 20, Burst: 40,
		Header: 5 * time.Second, Read: 10 * time.Second, Write: 30 * time.Second, Idle: time.Minute,
	}
}

// Route is one endpoint.
type Route struct {
	// Pattern of http.ServeMux, "POST /set-rt".
	Pattern string
	Handler http.Handler
	// Open to everybody: probes.
	Open bool
}

// Server serves routes until its context ends.
type Server struct {
	http     *http.Server
	listener net.Listener
}

// New makes a server. Nothing is served before Start.
func New(o Options, routes ...Route) *Server {
	limits := DefaultLimits()
	if o.Limits != nil {
		limits = *o.Limits
	}
	mux := http.NewServeMux()
	gate := &gate{clients: newClients(limits, o.Clock), body: limits.Body}
	for _, r := range routes {
		handler := r.Handler
		if !r.Open {
			handler = gate.around(o.Judge.around(o.Log, handler))
		}
		mux.Handle(r.Pattern, handler)
	}
	return Bounded(o.Listener, o.TLS, mux, limits, o.Log)
}

// Bounded makes a server that bounds connections, headers and times, and that leaves clients and bodies to its handler.
func Bounded(listener net.Listener, config *tls.Config, handler http.Handler, limits Limits, log logr.Logger) *Server {
	// One stream per connection: HTTP/2 would let any client open thousands.
	config = config.Clone()
	config.MinVersion, config.NextProtos = tls.VersionTLS12, []string{"http/1.1"}
	guests := &guests{Listener: listener, each: limits.OfAddress, all: limits.Connections}
	return &Server{
		listener: tls.NewListener(guests, config),
		http: &http.Server{
			Handler: handler, ConnState: guests.follow, ReadHeaderTimeout: limits.Header, ReadTimeout: limits.Read, WriteTimeout: limits.Write, IdleTimeout: limits.Idle,
			MaxHeaderBytes: 16 << 10, ErrorLog: stdlog.New(discard{log}, "", 0),
		},
	}
}

// discard has the faults of clients, such as handshakes that fail, in the log only when it is asked for.
type discard struct{ log logr.Logger }

func (d discard) Write(line []byte) (int, error) {
	d.log.V(1).Info("serving HTTP", "said", string(line))
	return len(line), nil
}

// stopTimeout is how long requests under way may take when the context has ended.
const stopTimeout = 5 * time.Second

// Start serves until ctx ends and the requests under way are answered.
func (s *Server) Start(ctx context.Context) error {
	serving := make(chan struct{})
	var failed error
	go func() {
		defer close(serving)
		failed = s.http.Serve(s.listener)
	}()
	select {
	case <-serving:
		return fmt.Errorf("serving: %w", failed)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := s.http.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-serving
	return err
}

// NeedLeaderElection is false: every replica of a controller serves.
func (s *Server) NeedLeaderElection() bool { return false }

// gate is before authentication, which costs a call to the API server.
type gate struct {
	clients *clients
	body    int64
}

func (g *gate) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.clients.allow(hostOf(r.RemoteAddr)) {
			refuse(w, &Problem{Code: http.StatusTooManyRequests, Reason: ReasonTooMany, Message: "too many requests of this client; come again in a second"})
			return
		}
		if r.ContentLength > g.body {
			refuse(w, tooLarge(g.body))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, g.body)
		next.ServeHTTP(w, r)
	})
}

func tooLarge(limit int64) *Problem {
	return &Problem{Code: http.StatusRequestEntityTooLarge, Reason: ReasonTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", limit)}
}

// Post handles a request with a body: parse reads it, do carries it out. What do returns is the answer's body.
// Errors that are no Problem are logged, and told as an internal one.
func Post[In, Out any](log logr.Logger, parse func([]byte) (In, error), do func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := handle(r, parse, do)
		if err == nil {
			answer(w, http.StatusOK, out)
			return
		}
		if problem := (*Problem)(nil); !errors.As(err, &problem) {
			log.Error(err, "carrying out a request", "path", r.URL.Path)
		}
		refuse(w, err)
	})
}

func handle[In, Out any](r *http.Request, parse func([]byte) (In, error), do func(context.Context, In) (Out, error)) (Out, error) {
	var none Out
	body, err := io.ReadAll(r.Body)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return none, tooLarge(tooLong.Limit)
	}
	if err != nil {
		return none, BadRequest("the body could not be read: %v", err)
	}
	in, err := parse(body)
	if err != nil {
		return none, err
	}
	return do(r.Context(), in)
}

// Get handles a request for a value.
func Get(value func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, value()) })
}

// Probe answers whether everything is well.
func Probe(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
}
