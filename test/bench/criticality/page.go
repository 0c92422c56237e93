package main

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	page "github.com/mainspring-rt/mainspring/pkg/cli/report"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/report"
	"github.com/mainspring-rt/mainspring/test/bench/stats"
)

// colours of the configurations, told apart also without colour vision (Okabe and Ito).
var colours = map[string]color.RGBA{
	cfs:      {0x88, 0x88, 0x88, 0xff},
	static:   {0xd5, 0x5e, 0x00, 0xff},
	elastic:  {0x00, 0x72, 0xb2, 0xff},
	reserved: {0x00, 0x9e, 0x73, 0xff},
}

// writePage writes the report: for each backend the share of jobs that took longer, who gave way, and every run.
func writePage(out string, e report.Environment, found []result) error {
	p := page.Page{
		Title: "Deadlines by criticality", Made: e.Time,
		Lead: fmt.Sprintf("Nine periodic tasks on one core of %s, Linux %s, beside busy ordinary threads: plain CFS, budgets fixed at low, and the node agent in two modes.", e.CPU, e.Kernel),
	}
	for _, r := range found {
		section, err := r.section()
		if err != nil {
			return err
		}
		p.Sections = append(p.Sections, section)
	}
	_, err := page.WriteFile(filepath.Join(out, "criticality"), p)
	return err
}

func (r result) section() (page.Section, error) {
	section := page.Section{Title: "Backend " + r.backend}
	for _, level := range levels {
		drawn, err := responsePlot(r, level.is)
		if err != nil {
			return section, err
		}
		section.Plots = append(section.Plots, drawn)
	}
	for _, run := range r.kept(elastic, true) {
		drawn, err := budgetPlot(run)
		if err != nil {
			return section, err
		}
		section.Plots = append(section.Plots, drawn)
	}
	t := page.Table{Caption: "Every run", How: "misses: jobs that ended after their deadline, or not at all; run 2 and 3: the machine stood still in those before"}
	t.Head = page.Columns(columns...)
	for _, row := range r.rows() {
		t.Rows = append(t.Rows, page.Cells(row.cells()...))
	}
	section.Tables = append(section.Tables, t)
	return section, nil
}

// budgetPlot is what was in force of each criticality's budgets in the set that squeezes, over time.
func budgetPlot(r run) (page.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "seconds", "budgets in force, of the low ones"
	p.Y.Min = 0
	for i, level := range levels {
		line, err := plotter.NewLine(r.inForce(level.is))
		if err != nil {
			return page.Plot{}, fmt.Errorf("drawing budgets: %w", err)
		}
		line.Color, line.Width, line.StepStyle = colours[configurations[i+1]], vg.Points(1.4), plotter.PostStep
		p.Add(line)
		p.Legend.Add(level.name, line)
	}
	svg, err := drawn(p)
	return page.Plot{Title: "Giving way, " + r.configuration, Unit: "share", How: "budgets as the kernel says, ten times a second, in set " + r.set.kind.name, SVG: svg}, err
}

// inForce is the sum of a criticality's budgets over time, as a part of the sum of its low ones.
func (r run) inForce(c rt.Criticality) plotter.XYs {
	out := plotter.XYs{}
	for _, at := range r.budgets {
		now, low := 0.0, 0.0
		for i, s := range r.set.servers {
			if s.Criticality == c {
				now += float64(at.Budgets[i]) / float64(s.Period)
				low += float64(s.Low) / float64(s.Period)
			}
		}
		out = append(out, plotter.XY{X: float64(at.At) / 1e3, Y: now / low})
	}
	return out
}

// drawn is a plot as SVG.
func drawn(p *plot.Plot) (template.HTML, error) {
	canvas := vgsvg.New(460, 300)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("drawing: %w", err)
	}
	// The SVG is made here, from numbers and fixed labels; what comes before its root is for files.
	return template.HTML(b.Bytes()[max(0, bytes.Index(b.Bytes(), []byte("<svg"))):]), nil
}

// responsePlot is the share of jobs that took longer than so many deadlines, on logarithmic axes.
func responsePlot(r result, c rt.Criticality) (page.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "response time in deadlines", "share of jobs that took longer"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0.01, 10, 1e-5, 1
	for _, configuration := range configurations {
		points := tail(stats.Of(r.inDeadlines(configuration, c)))
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return page.Plot{}, fmt.Errorf("drawing %s: %w", configuration, err)
		}
		line.Color, line.Width, line.StepStyle = colours[configuration], vg.Points(1.4), plotter.PostStep
		p.Add(line)
		p.Legend.Add(configuration, line)
		p.X.Max = max(p.X.Max, points[len(points)-1].X)
	}
	limit, err := plotter.NewLine(plotter.XYs{{X: 1, Y: p.Y.Min}, {X: 1, Y: 1}})
	if err != nil {
		return page.Plot{}, fmt.Errorf("drawing the deadline: %w", err)
	}
	limit.Dashes = dashes
	p.Add(limit)
	p.Legend.Left = true
	svg, err := drawn(p)
	return page.Plot{Title: c.String(), Unit: "dashed: the deadline", How: "from the tasks' own logs", SVG: svg}, err
}

// dashes of the deadline.
var dashes = []vg.Length{vg.Points(3), vg.Points(3)}

// inDeadlines are the response times of a configuration, each in deadlines of its task, in the sets whose high
// budgets all fit.
func (r result) inDeadlines(configuration string, c rt.Criticality) []float64 {
	var out []float64
	for _, run := range r.kept(configuration, false) {
		for i, s := range run.set.servers {
			if s.Criticality != c {
				continue
			}
			for _, ms := range run.logs[i].Responses() {
				out = append(out, ms*1e6/float64(run.logs[i].Deadline))
			}
		}
	}
	return out
}

// tail is how large a share of the ascending values is above each of at most a few hundred of them.
func tail(sorted []float64) plotter.XYs {
	const most = 400
	var out plotter.XYs
	n := len(sorted)
	for i, v := range sorted {
		above := n - 1 - i
		// All of the largest, and of the others as many as a line needs.
		if above > most/2 && i%(n/(most/2)+1) != 0 {
			continue
		}
		if above > 0 && v > 0 {
			out = append(out, plotter.XY{X: v, Y: float64(above) / float64(n)})
		}
	}
	return out
}
