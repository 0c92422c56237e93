package fastpath

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
)

const (
	// mostRequests is how many are answered at once: what they need of memory must stay far below where the runtime collects
	// garbage without asking.
	mostRequests = 8
	// bigBody is from how many bytes on a body is read alone, and announced: reading takes several times as much memory.
	bigBody = 256 << 10
)

// limits keep requests from one another; a request that is inside has put an element into the channel.
type limits struct{ requests, big chan struct{} }

func newLimits() limits {
	return limits{requests: make(chan struct{}, mostRequests), big: make(chan struct{}, 1)}
}

// within answers a request when it is its turn, and collects what it leaves behind.
func (e *Engine) within(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case e.limits.requests <- struct{}{}:
		case <-r.Context().Done():
			return // the client no longer waits for an answer
		}
		defer func() { <-e.limits.requests }()
		handler.ServeHTTP(w, r)
		e.collectGarbage()
	})
}

// read a request's body whole. The readers of events let garbage be collected while it is a big one.
func (e *Engine) read(w http.ResponseWriter, r *http.Request, into any) (err error) {
	if r.ContentLength >= 0 && r.ContentLength <= bigBody {
		return decode(w, r, into)
	}
	select {
	case e.limits.big <- struct{}{}:
	case <-r.Context().Done():
		return fmt.Errorf("waiting to be read: %w", r.Context().Err())
	}
	defer func() { <-e.limits.big }()
	e.lettingGo(func() {
		err = decode(w, r, into)
		e.collectGarbage()
	})
	return err
}

// decode takes one JSON object whole, and no fields that we do not know: both sides come from one release. What is cut off, or no
// object, must not be taken for an empty table, which lets go of every server.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, client.MaxBody))
	decoder.DisallowUnknownFields()
	switch err := decoder.Decode(&into); {
	case errors.Is(err, io.EOF):
		return errors.New("the body is empty; want one JSON object")
	case err != nil:
		return err
	case into == nil: // null takes away what it should have been read into
		return errors.New("the body is null; want one JSON object")
	}
	end := decoder.InputOffset()
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the body goes on after its JSON object, which ends at byte %d; want nothing behind it", end)
	}
	return nil
}
