package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"
)

// A disk that is full when the archive comes, whatever was estimated before, ends the transfer at once: no waiting makes room.
func TestADiskThatFillsUpMeanwhile(t *testing.T) {
	t.Parallel()
	archive := bytes.Repeat([]byte("state"), 1000)
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }))
	t.Cleanup(peer.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // by whose end it would go on trying
	defer cancel()
	err := fetch{
		peer: func() (string, *http.Client) { return peer.URL, peer.Client() }, path: "/dev/full", bytes: int64(len(archive)), digest: "sha256:0",
		progress: func(int64) {}, clock: clocktesting.NewFakeClock(time.Unix(1, 0)),
	}.complete(ctx)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
}
