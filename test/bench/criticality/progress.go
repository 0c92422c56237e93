package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// progress tells on the standard error which of the runs has been made.
type progress struct {
	began      time.Time
	done, runs int
}

func newProgress(runs int) *progress { return &progress{began: time.Now(), runs: runs} }

// made tells of a run; settled: the next one is another.
func (p *progress) made(backend string, r run, settled bool) {
	if settled {
		p.done++
	}
	fmt.Fprintf(os.Stderr, "[%d of %d, %s] %s\n", p.done, p.runs, time.Since(p.began).Round(time.Second), strings.TrimSpace(backend+" "+r.String()))
}
