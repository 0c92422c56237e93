package fastpath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Serve answers on a Unix socket until the context ends. Only processes of our own user and of root are
// heard. Listening is called once the socket is there.
func (e *Engine) Serve(ctx context.Context, socket string, listening func()) error {
	listener, err := listen(ctx, socket)
	if err != nil {
		return err
	}
	listening()
	server := &http.Server{
		Handler: e.handler(), ReadTimeout: client.Timeout, WriteTimeout: client.Timeout, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		_ = server.Close()
	}()
	err = server.Serve(&ownListener{UnixListener: listener})
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", socket, err)
}

// listen makes the socket; one that a former process left behind is replaced.
func listen(ctx context.Context, socket string) (*net.UnixListener, error) {
	if err := abandoned(ctx, socket); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replacing the socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("guarding the socket: %w", err), listener.Close())
	}
	return listener.(*net.UnixListener), nil
}

// abandoned says why a socket may not be replaced: another process serves it, or it is no socket.
func abandoned(ctx context.Context, socket string) error {
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("replacing the socket: %s is no socket", socket)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("another process answers on %s; end it, or use another socket", socket), conn.Close())
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("finding out whether anybody answers on the socket: %w", err)
}

// answerTimeout bounds how long that takes where the backlog of another process is full.
const answerTimeout = time.Second

// ownListener turns away processes of other users.
type ownListener struct{ *net.UnixListener }

func (l *ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if own(conn) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// own says that the process at the other end is of our user, or of root.
func own(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	var fault error
	err = raw.Control(func(fd uintptr) { peer, fault = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return err == nil && fault == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
}

func (e *Engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+client.PathTable, func(w http.ResponseWriter, r *http.Request) {
		var t table.Table
		answer(w, e.take(w, r, &t, func() error { return e.Apply(t) }))
	})
	mux.HandleFunc("DELETE "+client.PathTable, func(w http.ResponseWriter, _ *http.Request) { answer(w, e.Restore()) })
	mux.HandleFunc("GET "+client.PathReport, func(w http.ResponseWriter, _ *http.Request) { give(w, e.Report()) })
	mux.HandleFunc("GET "+client.PathSamples, func(w http.ResponseWriter, _ *http.Request) { give(w, e.Samples()) })
	mux.HandleFunc("POST "+client.PathSet, func(w http.ResponseWriter, r *http.Request) {
		var s client.SetRequest
		answer(w, e.take(w, r, &s, func() error { return e.Set(s) }))
	})
	mux.HandleFunc("POST "+client.PathRoom, func(w http.ResponseWriter, r *http.Request) {
		var s table.Server
		var first table.First
		err := e.take(w, r, &s, func() (err error) { first, err = e.Room(s); return err })
		if err != nil {
			answer(w, err)
			return
		}
		give(w, first)
	})
	all := http.NewServeMux()
	// The answer of PathAlive waits for no other request.
	all.HandleFunc("GET "+client.PathAlive, func(w http.ResponseWriter, _ *http.Request) { answer(w, e.Alive()) })
	all.Handle("/", e.within(mux))
	return all
}

// take reads a request's body whole before anything is done.
func (e *Engine) take(w http.ResponseWriter, r *http.Request, into any, do func() error) error {
	if err := e.read(w, r, into); err != nil {
		return &InvalidError{Faults: fmt.Errorf("reading the request: %w", err)}
	}
	return do()
}

func answer(w http.ResponseWriter, err error) {
	var invalid *InvalidError
	var refused *client.StatusError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &invalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.As(err, &refused):
		http.Error(w, refused.Reason, refused.Code)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func give(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the reader has gone
}
