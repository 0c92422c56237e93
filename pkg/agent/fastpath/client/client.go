// Package client speaks to the fast path over its Unix socket.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Paths of the fast path's protocol: HTTP over a Unix socket, JSON bodies.
const (
	// PathTable takes a table (PUT), or restores everything to what it was before (DELETE).
	PathTable = "/v1/table"
	// PathReport gives the state (GET).
	PathReport = "/v1/report"
	// PathSet puts one budget in force (POST).
	PathSet = "/v1/set"
	// PathRoom makes room for a container that is about to be created (POST).
	PathRoom = "/v1/room"
	// PathAlive says whether the process does its work (GET).
	PathAlive = "/v1/alive"
	// PathSamples gives the last reactions (GET).
	PathSamples = "/v1/samples"
)

// MaxBody is the longest body that either side reads, in bytes.
const MaxBody = 16 << 20

// Timeout of a request. Opening many groups takes long, so this is generous.
const Timeout = 30 * time.Second

// ErrUnreachable means: the fast path did not answer.
var ErrUnreachable = errors.New("the fast path does not answer")

// StatusError is an answer that refuses.
type StatusError struct {
	// Code is the HTTP status: 400 for what makes no sense, 404 for what is not there, 409 for what the
	// state forbids, 503 of a process that does not do its work.
	Code int
	// Reason in words, naming field, value and bound.
	Reason string
}

func (e *StatusError) Error() string { return e.Reason }

// Sample is one reaction to the end of a budget. Times are nanoseconds of the monotonic clock.
type Sample struct {
	// Server that was raised.
	Server string `json:"server"`
	// Instant when the budget less the lead was used up, Detected when the program saw it, Woken when the
	// reader did, Written when the new budget was in force.
	Instant  int64 `json:"instant"`
	Detected int64 `json:"detected"`
	Woken    int64 `json:"woken"`
	Written  int64 `json:"written"`
	// LeadNs is how long after Instant the budget ended.
	LeadNs int64 `json:"leadNs"`
}

// SetRequest puts one budget in force by hand.
type SetRequest struct {
	// Server is an ID or a container ID, whole.
	Server string `json:"server"`
	// PeriodUs must be that of the server; 0 leaves it.
	PeriodUs int64 `json:"periodUs,omitempty"`
	// RuntimeUs is the least budget from now on, from low to high.
	RuntimeUs int64 `json:"runtimeUs"`
	// Core must be that of the server where it is given.
	Core *int `json:"core,omitempty"`
}

// Client of one fast path. It is safe for concurrent use.
type Client struct {
	http http.Client
}

// New returns a client of the fast path that listens on a socket.
func New(socket string) *Client {
	dialer := net.Dialer{Timeout: 2 * time.Second}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		MaxIdleConns: 2, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	return &Client{http: http.Client{Transport: transport, Timeout: Timeout}}
}

// Apply gives the fast path a table. It is applied when this returns, but for the servers whose report
// names an error.
func (c *Client) Apply(ctx context.Context, t table.Table) error {
	return c.call(ctx, http.MethodPut, PathTable, t, nil)
}

// Report reads the state.
func (c *Client) Report(ctx context.Context) (table.Report, error) {
	var out table.Report
	return out, c.call(ctx, http.MethodGet, PathReport, nil, &out)
}

// Alive asks whether the fast path does its work; the error says what does not.
func (c *Client) Alive(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, PathAlive, nil, nil)
}

// Set puts one budget in force by hand, until the next table.
func (c *Client) Set(ctx context.Context, r SetRequest) error {
	return c.call(ctx, http.MethodPost, PathSet, r, nil)
}

// Room makes room at every level above a container that is about to be created: Cgroup is the path that it
// will have. It returns what the runtime should write into the new group.
func (c *Client) Room(ctx context.Context, s table.Server) (table.First, error) {
	var out table.First
	return out, c.call(ctx, http.MethodPost, PathRoom, s, &out)
}

// Samples reads the last reactions, oldest first.
func (c *Client) Samples(ctx context.Context) ([]Sample, error) {
	var out []Sample
	return out, c.call(ctx, http.MethodGet, PathSamples, nil, &out)
}

// Restore has the fast path let go of every server and set back all that it changed.
func (c *Client) Restore(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, PathTable, nil, nil)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://fastpath"+path, body)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = response.Body.Close() }()
	limited := io.LimitReader(response.Body, MaxBody)
	if response.StatusCode >= http.StatusBadRequest {
		reason, _ := io.ReadAll(limited)
		return &StatusError{Code: response.StatusCode, Reason: strings.TrimSpace(string(reason))}
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(limited).Decode(out); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}
