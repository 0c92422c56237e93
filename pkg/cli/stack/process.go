package stack

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/process"
)

const (
	// readyTimeout bounds how long a program may take until it is ready.
	readyTimeout = 2 * time.Minute
	// readyEvery is the pause between two questions whether it is.
	readyEvery = 100 * time.Millisecond
	// stopTimeout bounds how long it may take to end after SIGTERM.
	stopTimeout = 20 * time.Second
)

// waitReady asks a URL until it answers 200.
func waitReady(ctx context.Context, clk clock.WithTicker, p *process.Process, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := clk.NewTicker(readyEvery)
	defer ticker.Stop()
	for {
		if answers(ctx, url) {
			return nil
		}
		select {
		case <-p.Exited():
			return p.Died()
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to be ready: %w; the end of its log:\n%s", p.Name(), context.Cause(ctx), p.Tail())
		case <-ticker.C():
		}
	}
}

func answers(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}
