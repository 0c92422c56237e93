package node_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/node"
)

// logged is what is logged until the test ends.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func logs(t *testing.T) *logged {
	t.Helper()
	l, former := &logged{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(former) })
	return l
}

func TestAStartSaysWhatItIsAtAndEndsWhereThatHangs(t *testing.T) {
	log, clk, abandoned := logs(t), clocktesting.NewFakeClock(time.Now()), make(chan struct{})
	start := node.Begin(node.Settings{Clock: clk, Abandon: func() { close(abandoned) }}) // a second time it would panic
	defer start.Done()
	start.Next("quick")
	clk.Step(time.Second)
	start.Next("slow")
	if text := log.String(); !strings.Contains(text, "msg=starting step=quick") || !strings.Contains(text, "msg=starting step=slow") {
		t.Errorf("before its steps it says %q", text)
	}
	began := clk.Now()
	for _, second := range []int{2, 29} {
		clk.SetTime(began.Add(time.Duration(second) * time.Second))
		start.Look()
	}
	text := log.String()
	for _, want := range []string{`msg="still starting" step=slow for=2s`, `msg="still starting" step=slow for=29s`} {
		if !strings.Contains(text, want) {
			t.Errorf("it says %q; want %q", text, want)
		}
	}
	if strings.Contains(text, "still starting\" step=quick") {
		t.Errorf("it says %q of a step that took a second", text)
	}
	clk.SetTime(began.Add(30 * time.Second)) // at which the clock does not tick
	start.Look()
	<-abandoned
	clk.Step(30 * time.Second)
	start.Look()
	if text := log.String(); !strings.Contains(text, `msg="the start hangs; ending" step=slow for=30s within=30s`) {
		t.Errorf("at its end it says %q", text)
	}
}

// A start watches itself: no other call is needed.
func TestAStartThatHangsIsAbandonedByItself(t *testing.T) {
	clk, abandoned := clocktesting.NewFakeClock(time.Now()), make(chan struct{})
	start := node.Begin(node.Settings{Clock: clk, Abandon: func() { close(abandoned) }})
	defer start.Done()
	start.Next("slow")
	late := time.After(patience)
	for {
		select {
		case <-abandoned:
			return
		case <-late:
			t.Fatal("it is not abandoned")
		case <-time.After(time.Millisecond):
			clk.Step(time.Second)
		}
	}
}

func TestAStartThatIsDoneIsNotAbandoned(t *testing.T) {
	log, clk := logs(t), clocktesting.NewFakeClock(time.Now())
	start := node.Begin(node.Settings{Clock: clk, Abandon: func() { t.Error("it is abandoned") }})
	start.Next("the last")
	start.Done()
	start.Done()
	clk.Step(time.Hour)
	start.Look()
	if text := log.String(); strings.Contains(text, "still") {
		t.Errorf("it says %q", text)
	}
}
