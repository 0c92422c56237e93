package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestProgressBoundsRepeats(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, 6)
	for i, want := range []bool{true, true, false} {
		if got := p.mayRepeat(); got != want {
			t.Errorf("after %d: may repeat %v; want %v", i, got, want)
		}
		p.made("fifo", kept, true)
	}
	p.made("fifo", kept, false)
	if lines := strings.Split(out.String(), "\n"); !strings.HasPrefix(lines[3], "[1 of 6, 0s] fifo randfixedsum reserved: misses high 2 of 3") {
		t.Errorf("got %q", lines)
	}
}
