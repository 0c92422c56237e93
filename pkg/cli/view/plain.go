package view

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/charmbracelet/x/ansi"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
)

// plainEvery is how often the plain view looks, plainStatus how often it tells the figures when nothing else happens.
const (
	plainEvery  = 500 * time.Millisecond
	plainStatus = 10 * time.Second
)

// Plain prints lines about a source until the context ends, and once more after that.
func Plain(ctx context.Context, out io.Writer, clk clock.WithTicker, source func() Frame) {
	printer := &Printer{out: out}
	ticker := clk.NewTicker(plainEvery)
	defer ticker.Stop()
	for {
		printer.Print(source())
		select {
		case <-ctx.Done():
			printer.Print(source())
			return
		case <-ticker.C():
		}
	}
}

// Printer prints what is new in each frame.
type Printer struct {
	out     io.Writer
	steps   []Status
	newest  observe.Decision
	status  time.Duration
	started bool
	notice  string
	cores   map[string]string // what was told of each core, by node and core
}

// NewPrinter makes a printer.
func NewPrinter(out io.Writer) *Printer { return &Printer{out: out} }

// Print prints what changed since the last frame.
func (p *Printer) Print(f Frame) {
	at := clockOf(f.Elapsed)
	if f.Notice != "" && f.Notice != p.notice {
		p.line(at, f.Notice)
	}
	p.notice = f.Notice
	p.printSteps(at, f.Steps)
	p.printDecisions(at, f.Decisions)
	p.printCores(at, f.State)
	if !p.started || f.Elapsed-p.status >= plainStatus {
		p.started, p.status = true, f.Elapsed
		p.line(at, statusWords(f))
	}
}

func (p *Printer) line(at, text string) { fmt.Fprintf(p.out, "%s  %s\n", at, text) }

func (p *Printer) printSteps(at string, steps []Step) {
	for i, s := range steps {
		if i == len(p.steps) {
			p.steps = append(p.steps, Waiting)
		}
		if p.steps[i] == s.Status {
			continue
		}
		p.steps[i] = s.Status
		switch s.Status {
		case Running:
			p.line(at, fmt.Sprintf("[%d/%d] %s: %s", i+1, len(steps), s.Title, s.Doing))
		case Done, Failed:
			p.line(at, fmt.Sprintf("[%d/%d] %s: %s after %.1f s: %s", i+1, len(steps), s.Title, s.Status, s.Took.Seconds(), s.Outcome))
		}
	}
}

// printDecisions prints the decisions after the newest one that was printed.
func (p *Printer) printDecisions(at string, all []observe.Decision) {
	from := 0
	for i, d := range all {
		if same(d, p.newest) {
			from = i + 1
		}
	}
	for _, d := range all[from:] {
		p.line(at, fmt.Sprintf("  %-8s %s  %s", d.Kind, d.Node, d.Text))
		p.newest = d
	}
}

// printCores prints the cores on which something else runs now, or with another budget.
func (p *Printer) printCores(at string, s observe.State) {
	told := map[string]string{}
	for _, n := range s.Nodes {
		for _, c := range n.Cores {
			key := fmt.Sprintf("%s/%d", n.Claim, c.ID)
			told[key] = coreWords(n, c)
			if before, known := p.cores[key]; before != told[key] && (known || len(c.Servers) > 0) {
				p.line(at, fmt.Sprintf("  [%s] %3.0f%%  %s", ansi.Strip(coreBar(c)), 100*c.Promised, told[key]))
			}
		}
	}
	p.cores = told
}

func same(a, b observe.Decision) bool {
	return a.At.Equal(b.At) && a.Kind == b.Kind && a.Node == b.Node && a.Text == b.Text
}

func statusWords(f Frame) string {
	s := f.State
	words := fmt.Sprintf("%d nodes, %d pods running, %d pending, $%.3f/h, %.0f W", len(s.Nodes), s.Running, s.Pending, s.Price(), s.Watts())
	if f.Progress.Total > 0 {
		words = fmt.Sprintf("%d of %d %s; ", f.Progress.Done, f.Progress.Total, f.Progress.Words) + words
	}
	return words
}
