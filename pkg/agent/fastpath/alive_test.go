package fastpath_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
)

// A reader that hangs and a slow half that does are told by their names; a table that takes long is neither.
func TestAliveSaysWhatHangs(t *testing.T) {
	n, c, _ := served(t, newKernel("/a"))
	expect := func(when string, reasons ...string) {
		t.Helper()
		err := c.Alive(t.Context())
		var refused *client.StatusError
		if len(reasons) == 0 {
			if err != nil {
				t.Errorf("%s: %v", when, err)
			}
			return
		}
		for _, reason := range reasons {
			if !errors.As(err, &refused) || refused.Code != 503 || !strings.Contains(refused.Reason, reason) {
				t.Errorf("%s: %v; want 503, %q", when, err, reason)
			}
		}
	}
	step := func(d time.Duration) { n.now.Add(d.Nanoseconds()) }
	n.wake(0) // both have begun: a reader's first turn counts, too
	n.wake(1)
	expect("at first")
	step(11 * time.Second)
	n.wake(0)
	expect("one reader hangs", "reader of core 1")
	n.wake(1)
	expect("it comes round")
	n.kernel.change(func() { // a group that is being opened waits for its end
		go func() { _ = n.Apply(tableOf(1, high("a", "/a", 0))) }()
		for range 10 { // more than are answered at once
			go func() { _, _ = c.Report(t.Context()) }()
		}
		step(time.Minute)
		n.wake(0)
		n.wake(1)
		expect("a table takes a minute")
		step(time.Minute)
		n.wake(0)
		n.wake(1)
		expect("a table takes two", "nothing was swept for 2m11s")
	})
	n.sweep()
	expect("swept again")
}
