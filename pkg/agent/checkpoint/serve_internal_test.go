package checkpoint

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// All transfers of a node together keep to its rate: what one has taken the next one has to wait for, for longer than the test
// waits here.
func TestTransfersShareTheRate(t *testing.T) {
	t.Parallel()
	find := func(types.UID, string) (holding, bool) { return holding{}, false }
	s := newServer(find, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a piece takes 18 hours at a byte a second
	defer cancel()
	write := func() (int, error) {
		return (&limited{ResponseWriter: httptest.NewRecorder(), ctx: ctx, limit: s.limit}).Write(make([]byte, piece))
	}
	if n, err := write(); n != piece || err != nil {
		t.Errorf("the first piece: %d, %v", n, err)
	}
	if n, err := write(); n != 0 || err == nil {
		t.Errorf("%d bytes more, and %v, at a byte a second", n, err)
	}
	for given, want := range map[int64]rate.Limit{1: 1, 100 << 20: 100 << 20} {
		if got := newServer(find, given).limit.Limit(); got != want {
			t.Errorf("of %d bytes a second it makes %v", given, got)
		}
	}
	if newServer(find, 0).limit != nil {
		t.Error("0 is no bound")
	}
}

// A client that takes nothing of what it has asked for does not keep its place among the transfers.
func TestAClientThatTakesNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newServer(func(types.UID, string) (holding, bool) { return holding{}, false }, 0)
	s.stall = 50 * time.Millisecond
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := (&limited{ResponseWriter: w, ctx: r.Context(), stall: s.stall}).Write(make([]byte, 64<<20)) // more than any socket takes
		ended <- err
	}))
	defer server.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
