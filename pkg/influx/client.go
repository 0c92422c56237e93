package influx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Mode is which interface is written to.
type Mode string

// Modes.
const (
	// ModeV1 is InfluxDB 1.x: POST /write?db=.
	ModeV1 Mode = "v1"
	// ModeV2 is InfluxDB 2.x: POST /api/v2/write?org=&bucket=.
	ModeV2 Mode = "v2"
)

const (
	// mostAnswer is how much of an answer to a question is read.
	mostAnswer = 16 << 20
	// mostWords is how much of what InfluxDB says about an error is kept.
	mostWords = 512
)

// Client talks to one InfluxDB.
type Client struct {
	// URL without path, as http://influxdb:8086.
	URL string
	// Org is that of 2.x; Bucket the bucket of 2.x, the database of 1.x.
	Org, Bucket string
	// Mode of writing. Questions are always those of 2.x.
	Mode Mode
	// Token is asked for with each request, as it may change; empty: none is sent. Of 1.x it is user:password.
	Token func() (string, error)
	// HTTP sends the requests.
	HTTP *http.Client
}

// StatusError is an answer that is not success.
type StatusError struct {
	// Code of HTTP; Words of InfluxDB.
	Code  int
	Words string
	// RetryAfter as the server gave it.
	RetryAfter string
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.Words == "" {
		return fmt.Sprintf("InfluxDB answers %d %s", e.Code, http.StatusText(e.Code))
	}
	return fmt.Sprintf("InfluxDB answers %d: %s", e.Code, e.Words)
}

// AnswerError is an answer that is not what it should be.
type AnswerError struct{ Err error }

// Error implements error.
func (e *AnswerError) Error() string { return "the answer of InfluxDB: " + e.Err.Error() }

func (e *AnswerError) Unwrap() error { return e.Err }

// Write stores lines.
func (c *Client) Write(ctx context.Context, lines []string) error {
	target := "/write?" + url.Values{"db": {c.Bucket}, "precision": {"ns"}}.Encode()
	if c.Mode == ModeV2 {
		target = "/api/v2/write?" + url.Values{"org": {c.Org}, "bucket": {c.Bucket}, "precision": {"ns"}}.Encode()
	}
	reply, err := c.send(ctx, target, "text/plain; charset=utf-8", strings.Join(lines, "\n")+"\n")
	if err != nil {
		return err
	}
	return reply.Close()
}

// send posts a body, and gives the answer's when it is success.
func (c *Client) send(ctx context.Context, target, kind, body string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+target, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("Accept", "application/csv, application/json")
	if err := c.authorise(request); err != nil {
		return nil, err
	}
	reply, err := c.HTTP.Do(request)
	if err != nil {
		return nil, withoutURL(err)
	}
	if reply.StatusCode >= 200 && reply.StatusCode < 300 {
		return reply.Body, nil
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(reply.Body, mostWords)) // what is readable of an error is enough
	return nil, &StatusError{Code: reply.StatusCode, Words: strings.TrimSpace(clean(string(text))), RetryAfter: reply.Header.Get("Retry-After")}
}

func (c *Client) authorise(request *http.Request) error {
	if c.Token == nil {
		return nil
	}
	token, err := c.Token()
	if err != nil {
		return fmt.Errorf("reading the token for InfluxDB: %w", err)
	}
	user, password, isUser := strings.Cut(token, ":")
	switch {
	case token == "":
	case c.Mode == ModeV1 && isUser:
		request.SetBasicAuth(user, password)
	default:
		request.Header.Set("Authorization", "Token "+token)
	}
	return nil
}

// withoutURL leaves the address out of an error: what is told about errors names it once.
func withoutURL(err error) error {
	var address *url.Error
	if errors.As(err, &address) {
		return fmt.Errorf("asking InfluxDB: %w", address.Err)
	}
	return err
}
