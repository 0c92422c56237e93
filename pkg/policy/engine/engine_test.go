package engine_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/policy/engine"
)

var question = engine.Question{
	Pod:        engine.Pod{Name: "web-1", Namespace: "default", NodeName: "n1", Labels: map[string]string{"app": "web"}},
	SourceNode: "n1", TargetNode: "n2", Trigger: "Cost", UID: "u1",
}

// served is an engine that answers as told, and the client for it.
func served(t *testing.T, answer http.HandlerFunc, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c := engine.Config{URL: server.URL, Clock: clocktesting.NewFakePassiveClock(time.Unix(1, 0))}
	for _, f := range change {
		f(&c)
	}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) } //nolint:errcheck // the caller sees what comes
}

// The request is the one of the SDI Migration Service, byte for byte in what its engines read.
func TestTheQuestionIsThatOfTheSeed(t *testing.T) {
	var body map[string]any
	var got *http.Request
	e := served(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		json.NewDecoder(r.Body).Decode(&body)                                  //nolint:errcheck // body is looked at
		io.WriteString(w, `{"allowed":true,"reason":"by policy","extra":[1]}`) //nolint:errcheck // the caller sees what comes
	})
	a, err := e.Ask(t.Context(), question)
	if err != nil || !a.Allowed || a.Reason != "by policy" || a.Cached {
		t.Errorf("%+v, %v", a, err)
	}
	if got.Method != http.MethodPost || got.URL.Path != "/api/v1/migration/policy" || got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Authorization") != "" {
		t.Errorf("%s %s %v", got.Method, got.URL, got.Header)
	}
	want := map[string]any{
		"pod":         map[string]any{"name": "web-1", "namespace": "default", "node_name": "n1", "labels": map[string]any{"app": "web"}},
		"source_node": "n1", "target_node": "n2", "trigger": "Cost",
	}
	if fmt.Sprint(body) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", body, want)
	}
}

func TestOnlyAnAnswerIsAnAnswer(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		`has no field "allowed"`:            text(`{"reason":"yes"}`),
		`neither true nor false`:            text(`{"allowed":"true"}`),
		`"allowed" of the answer`:           text(`{"allowed":null}`),
		`allowed" of the answer is neither`: text(`{"allowed":1}`),
		`no field "allowed"`:                text(`{"Allowed":true}`),
		`field "reason"`:                    text(`{"allowed":true,"reason":7}`),
		`not a JSON object`:                 text(`[true]`),
		`is not a JSON object`:              text(`null`),
		`the answer is not`:                 text(`{"allowed":true}{"allowed":true}`),
		`answer is not a JSON`:              text(``),
		`has field "allowed" twice`:         text(`{"allowed":false,"allowed":true}`),
		`has field "reason" twice`:          text(`{"reason":"a","allowed":true,"r\u0065ason":"b"}`),
		`the answer is not a`:               text(`{"allowed":true`),
		`is not a JSON obj`:                 text(`{"allowed":true,}`),
		`more than 65536 bytes`:             text(`{"allowed":true,"reason":"` + strings.Repeat("x", 70_000) + `"}`),
		`it answers 500`:                    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"allowed":true}`, 500) },
		`it answers 404`:                    http.NotFound,
		`it answers 302`: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != engine.Path {
				t.Error("the redirect was followed")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		`it answers 307`: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != engine.Path {
				t.Error("the redirect was followed")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		`headers exceeded`: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Much", strings.Repeat("x", 100_000))
			io.WriteString(w, `{"allowed":true}`) //nolint:errcheck // the caller sees what comes
		},
		`unexpected EOF`: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"allowed":true}`) //nolint:errcheck // the caller sees what comes
		},
	} {
		a, err := served(t, answer).Ask(t.Context(), question)
		if err == nil || !strings.Contains(err.Error(), want) || a.Allowed {
			t.Errorf("%+v, %v, want %q", a, err, want)
		}
	}
}

func TestNoIsAnAnswer(t *testing.T) {
	a, err := served(t, text(`{"allowed":false,"reason":"`+strings.Repeat("é", 400)+`"}`)).Ask(t.Context(), question)
	if err != nil || a.Allowed || len(a.Reason) > 512 || strings.Trim(a.Reason, "é") != "" {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := served(t, text(`{"allowed":false,"reason":"\u001b[2J no\nAllowed: true"}`)).Ask(t.Context(), question); err != nil || a.Allowed || a.Reason != "\ufffd[2J no Allowed: true" {
		t.Errorf("with control characters: %+v, %v", a, err)
	}
	if a, err := served(t, text(`{"allowed":true,"reason":null}`)).Ask(t.Context(), question); err != nil || !a.Allowed || a.Reason != "" {
		t.Errorf("without a reason: %+v, %v", a, err)
	}
}

func TestAnEngineThatIsSlowIsNotWaitedFor(t *testing.T) {
	e := served(t, func(_ http.ResponseWriter, r *http.Request) { abandoned(r) }, func(c *engine.Config) { c.Timeout = 50 * time.Millisecond })
	_, err := e.Ask(t.Context(), question)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Error(err)
	}
	e = served(t, func(w http.ResponseWriter, r *http.Request) { // it begins, and never ends
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		abandoned(r)
	}, func(c *engine.Config) { c.Timeout = 50 * time.Millisecond })
	if _, err := e.Ask(t.Context(), question); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// abandoned waits until the caller has gone. The server notices only when it has read all that was sent.
func abandoned(r *http.Request) {
	io.Copy(io.Discard, r.Body) //nolint:errcheck // it ends either way
	<-r.Context().Done()
}

// transport counts attempts and fails as told.
type transport struct {
	attempts atomic.Int32
	answer   func(attempt int32) (*http.Response, error)
}

func (s *transport) RoundTrip(*http.Request) (*http.Response, error) {
	return s.answer(s.attempts.Add(1))
}

func said(body string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}
}

func over(t *testing.T, s *transport, clk clock.PassiveClock) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{URL: "http://engine", Clock: clk, Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestOnlyAFailedConnectionIsTriedAgainAndOnce(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		first    error
		attempts int32
		works    bool
	}{
		"no connection":          {refused, 2, true},
		"the connection broke":   {&net.OpError{Op: "read", Err: errors.New("reset by peer")}, 1, false},
		"something else happens": {errors.New("broken"), 1, false},
	} {
		s := &transport{answer: func(attempt int32) (*http.Response, error) {
			if attempt == 1 {
				return nil, c.first
			}
			return said(`{"allowed":true}`), nil
		}}
		a, err := over(t, s, clock.RealClock{}).Ask(t.Context(), question)
		if s.attempts.Load() != c.attempts || a.Allowed != c.works || (err == nil) != c.works {
			t.Errorf("%s: %d attempts, %+v, %v", name, s.attempts.Load(), a, err)
		}
	}
	s := &transport{answer: func(int32) (*http.Response, error) { return nil, refused }}
	if _, err := over(t, s, clock.RealClock{}).Ask(t.Context(), question); err == nil || s.attempts.Load() != 2 {
		t.Errorf("%d attempts, %v", s.attempts.Load(), err)
	}
}

func TestAnswersAreKeptForSeconds(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	s := &transport{answer: func(n int32) (*http.Response, error) { return said(fmt.Sprintf(`{"allowed":%t}`, n > 1)), nil }}
	e := over(t, s, clk)
	ask := func(q engine.Question, attempts int32, want engine.Answer) {
		t.Helper()
		if a, err := e.Ask(t.Context(), q); err != nil || a != want || s.attempts.Load() != attempts {
			t.Errorf("%+v, %v after %d attempts", a, err, s.attempts.Load())
		}
	}
	ask(question, 1, engine.Answer{})
	ask(question, 1, engine.Answer{Cached: true})
	for _, change := range []func(*engine.Question){
		func(q *engine.Question) { q.UID = "u2" }, func(q *engine.Question) { q.SourceNode = "n9" },
		func(q *engine.Question) { q.TargetNode = "n9" }, func(q *engine.Question) { q.Trigger = "Power" },
	} {
		q, n := question, s.attempts.Load()
		change(&q)
		ask(q, n+1, engine.Answer{Allowed: true})
	}
	n := s.attempts.Load()
	clk.SetTime(clk.Now().Add(10*time.Second - 1))
	ask(question, n, engine.Answer{Cached: true})
	clk.SetTime(clk.Now().Add(1))
	ask(question, n+1, engine.Answer{Allowed: true})
}

func TestAFailureIsNotKept(t *testing.T) {
	s := &transport{answer: func(n int32) (*http.Response, error) {
		if n == 1 {
			return said(`{}`), nil
		}
		return said(`{"allowed":true}`), nil
	}}
	e := over(t, s, clocktesting.NewFakePassiveClock(time.Unix(1, 0)))
	if _, err := e.Ask(t.Context(), question); err == nil {
		t.Error("no error")
	}
	if a, err := e.Ask(t.Context(), question); err != nil || !a.Allowed {
		t.Errorf("%+v, %v", a, err)
	}
}

// After five failures in a row nothing is asked for ten seconds; then one question decides whether it goes on.
func TestAnEngineThatFailsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		works := false
		s := &transport{}
		s.answer = func(int32) (*http.Response, error) {
			if works {
				return said(`{"allowed":true}`), nil
			}
			return said(`nonsense`), nil
		}
		e := over(t, s, clock.RealClock{})
		fails := func(attempts int32, paused bool) {
			t.Helper()
			if _, err := e.Ask(t.Context(), question); errors.Is(err, engine.ErrPaused) != paused || err == nil || s.attempts.Load() != attempts {
				t.Errorf("%v after %d attempts", err, s.attempts.Load())
			}
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // nobody wants these answers: that says nothing about the engine
			s.answer = func(int32) (*http.Response, error) { return nil, context.Canceled }
			if _, err := e.Ask(cancelled, question); errors.Is(err, engine.ErrPaused) {
				t.Fatal(err)
			}
		}
		s.attempts.Store(0)
		s.answer = func(int32) (*http.Response, error) {
			if works {
				return said(`{"allowed":true}`), nil
			}
			return said(`nonsense`), nil
		}
		for n := range int32(5) {
			fails(n+1, false)
		}
		fails(5, true)
		time.Sleep(11 * time.Second)
		fails(6, false)
		fails(6, true)
		works = true
		fails(6, true)
		time.Sleep(11 * time.Second)
		if a, err := e.Ask(t.Context(), question); err != nil || !a.Allowed {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// A token is sent over TLS that is verified, and stands in no error.
func TestTokensAreSecret(t *testing.T) {
	const token = "a-bearer-of-secrets"
	var got string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		http.Error(w, got, http.StatusForbidden) // it says it again
	}))
	defer server.Close()
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	config := engine.Config{URL: server.URL, CABundle: bundle, Clock: clock.RealClock{}, Token: func(context.Context) (string, error) { return token, nil }}
	ask := func() error {
		t.Helper()
		e, err := engine.New(config)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		_, err = e.Ask(t.Context(), question)
		if err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("error %v", err)
		}
		return err
	}
	if err := ask(); !strings.Contains(err.Error(), "it answers 403") || got != "Bearer "+token {
		t.Errorf("%v with %q", err, got)
	}
	got, config.CABundle = "", ""
	if err := ask(); !strings.Contains(err.Error(), "certificate") || got != "" {
		t.Errorf("an unknown authority: %v with %q", err, got)
	}
	config.URL = "http://example.com"
	if _, err := engine.New(config); err == nil {
		t.Error("a token would be sent in the clear")
	}
	for _, address := range []string{"", "ftp://x", "http://", "https://me:" + token + "@x", "http://a b"} {
		if _, err := engine.New(engine.Config{URL: address, Clock: clock.RealClock{}}); err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
