package checkpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
	// stallTimeout is how long a client may take no byte of an archive. A whole archive may take hours.
	stallTimeout = 30 * time.Second
	// maxConnections at once, and those of one address. A target fetches the archives of a pod's containers one after the other.
	maxConnections, maxOfAddress = 64, 16
	// maxTransfers is how many archives are given out at once; others are told to come back.
	maxTransfers = 4
	// piece is the most that one write hands on; the bucket of the rate must hold it.
	piece = 64 << 10
)

// archivePath is where an archive is served.
func archivePath(uid types.UID, container string) string {
	return "/v1/checkpoints/" + string(uid) + "/" + container
}

// holding is an archive that may be given to the agent with a certain certificate.
type holding struct {
	path, digest, to string
}

// server gives archives to the agents of the nodes that they are for.
type server struct {
	// find returns what is held; false when there is nothing, or no agent may have it yet.
	find  func(uid types.UID, container string) (holding, bool)
	limit *rate.Limiter // nil: as fast as it goes
	busy  chan struct{}
	stall time.Duration
}

func newServer(find func(types.UID, string) (holding, bool), bytesPerSecond int64) *server {
	s := &server{find: find, busy: make(chan struct{}, maxTransfers), stall: stallTimeout}
	if bytesPerSecond > 0 {
		s.limit = rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(piece, min(bytesPerSecond/10, 16<<20))))
	}
	return s
}

// serve listens until ctx ends.
func (s *server) serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+archivePath("{uid}", "{container}"), s.get)
	// No bound for a whole answer or a whole request: the first would end long transfers, and the second ends the context of requests that are answered.
	limits := frontdoor.Limits{Connections: maxConnections, OfAddress: maxOfAddress, Header: headerTimeout, Idle: idleTimeout}
	if err := frontdoor.Bounded(listener, config, mux, limits, logr.Discard()).Start(ctx); err != nil { // handshakes of strangers are theirs to explain
		return fmt.Errorf("serving archives: %w", err)
	}
	return nil
}

// get gives an archive, or a part of it, to the agent that it is for. No other client learns whether there is one.
func (s *server) get(w http.ResponseWriter, r *http.Request) {
	out := &limited{ResponseWriter: w, ctx: r.Context(), limit: s.limit, stall: s.stall}
	if err := out.extend(); err != nil {
		return
	}
	held, ok := s.find(types.UID(r.PathValue("uid")), r.PathValue("container"))
	if !ok || held.to == "" || shown(r.TLS) != held.to {
		http.NotFound(w, r)
		return
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many transfers at once", http.StatusServiceUnavailable)
		return
	}
	file, err := os.OpenFile(held.path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("ETag", `"`+held.digest+`"`)
	http.ServeContent(out, r, "", time.Time{}, file)
}

// limited writes no faster than the limit that all transfers share, and gives up on a client that takes nothing for long.
type limited struct {
	http.ResponseWriter
	ctx   context.Context //nolint:containedctx // of the request, for which this lives
	limit *rate.Limiter
	stall time.Duration
}

// extend gives the client its time for the next piece.
func (l *limited) extend() error {
	err := http.NewResponseController(l.ResponseWriter).SetWriteDeadline(time.Now().Add(l.stall)) //nolint:forbidigo // a deadline of the kernel
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// Write implements io.Writer.
func (l *limited) Write(data []byte) (int, error) {
	written := 0
	for len(data) > 0 {
		part := data[:min(piece, len(data))]
		if l.limit != nil {
			if err := l.limit.WaitN(l.ctx, len(part)); err != nil {
				return written, err
			}
		}
		if err := l.extend(); err != nil {
			return written, err
		}
		n, err := l.ResponseWriter.Write(part)
		written += n
		if err != nil {
			return written, err
		}
		data = data[n:]
	}
	return written, nil
}
