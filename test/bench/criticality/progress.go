package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress tells which of the runs has been made, and bounds how many are made again.
type progress struct {
	to    io.Writer
	began time.Time
	// runs are planned, done of them settled; repeated were made in vain.
	runs, done, repeated int
}

func newProgress(to io.Writer, runs int) *progress {
	return &progress{to: to, began: time.Now(), runs: runs}
}

// mayRepeat: of all runs a third at most is made again, so that a benchmark ends.
func (p *progress) mayRepeat() bool { return p.repeated < p.runs/3 }

// made tells of a run.
func (p *progress) made(backend string, r run, again bool) {
	if again {
		p.repeated++
	} else {
		p.done++
	}
	fmt.Fprintf(p.to, "[%d of %d, %s] %s\n", p.done, p.runs, time.Since(p.began).Round(time.Second), strings.TrimSpace(backend+" "+r.String()))
}
