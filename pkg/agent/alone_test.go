package agent_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent"
)

// A second agent on the node says what is wrong, and leaves the first alone; when that ends, the next begins.
func TestANodeHasOneAgent(t *testing.T) {
	w := newWorld(t)
	w.fast.start("x")
	stop := w.agent()
	w.eventually("an agent at work", func() string {
		if w.fast.pulls() > 0 {
			return ""
		}
		return "not pulled yet"
	})
	options, err := agent.ParseOptions([]string{
		"--node-name=" + w.node.Name, "--fastpath-socket=" + w.fast.socket, "--host-root=" + w.tree.Dir(), "--state-dir=" + w.stateDir, "--kubelet-dir=", "--port=0",
	}, io.Discard)
	w.must(err)
	clk := clocktesting.NewFakeClock(time.Now())
	second := func() error {
		services, err := agent.Services(agent.Environment{Options: options, Config: w.config, Clock: clk, Log: logr.Discard(), Version: "test"})
		w.must(err)
		return agent.RunServices(t.Context(), services)
	}
	ended := make(chan error, 1)
	go func() { ended <- second() }()
	w.eventually("the end of the second", func() string {
		clk.Step(time.Second)
		select {
		case err = <-ended:
			return ""
		default:
			return "it runs"
		}
	})
	if err == nil || !strings.Contains(err.Error(), "another agent uses --state-dir") {
		t.Errorf("the second agent ended with %v", err)
	}
	stop()
	pulled := w.fast.pulls()
	w.agent()
	w.eventually("the next one at work", func() string {
		if w.fast.pulls() > pulled {
			return ""
		}
		return "not pulled yet"
	})
}
