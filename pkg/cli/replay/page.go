package replay

import (
	"fmt"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/report"
)

// maxListed bounds the pods that a table of the page lists; replay.json has them all.
const maxListed = 50

// Page makes the HTML report of a run.
func Page(s Summary, r Record, made time.Time, environment [][]report.Cell) (report.Page, error) {
	plots, err := plots(r)
	if err != nil {
		return report.Page{}, err
	}
	page := report.Page{
		Title: "Workload replay", Made: made, Lead: lead(s), Tiles: tiles(s),
		Sections: []report.Section{
			{Title: "Over time", Text: []string{fmt.Sprintf("Time is the trace's, from the first pod. %s.", sentence(s.How["speed"]))}, Plots: plots},
			{Title: "Waiting", Tables: []report.Table{waitTable(s)}},
			{Title: "Machines", Tables: []report.Table{machineTable(s)}},
			misfits(s),
			{Title: "How the figures were made", Tables: []report.Table{howTable(s), report.Environment(environment...)}},
		},
	}
	return page, nil
}

func lead(s Summary) string {
	return fmt.Sprintf("%d pods of %s, recorded over %.1f days, played %g times faster in %.0f real seconds on the simulated cloud.",
		s.Input.Selected, s.Input.Pods, s.Input.SpanDays, s.Input.Speed, s.Run.Seconds)
}

func tiles(s Summary) []report.Tile {
	return []report.Tile{
		waitTile("Pod wait, median", s.Wait.Bound, s.Wait.Bound.P50),
		waitTile("Pod wait, 99th percentile", s.Wait.Bound, s.Wait.Bound.P99),
		{Label: "Spent", Value: fmt.Sprintf("%.2f", s.Spent.Dollars), Unit: "$", How: fmt.Sprintf("over %.1f days of trace time; %.2f of it for nodes without a pod", s.Run.TraceDays, s.Spent.DollarsIdle)},
		{Label: "Energy", Value: fmt.Sprintf("%.3g", s.Spent.KWh), Unit: "kWh", How: "modelled, in trace time"},
		{Label: "Nodes", Value: fmt.Sprintf("%.3g", s.Spent.NodeHours), Unit: "node hours", How: fmt.Sprintf("at most %d at once, in trace time", s.Spent.PeakNodes)},
		{Label: "Requested of allocatable", Value: fmt.Sprintf("%.0f%%", 100*s.Spent.CPU), Unit: "CPU", How: fmt.Sprintf("%.0f%% of the GPUs; integrated over the run", 100*s.Spent.GPU)},
		{Label: "Pods started", Value: fmt.Sprint(s.Run.Started), Unit: fmt.Sprintf("of %d", s.Input.Selected), How: fmt.Sprintf("%d fit no allowed machine, %d never started", len(s.Fit.Misfits), len(s.Run.NeverStarted))},
		{Label: "Fit an allowed machine", Value: fmt.Sprintf("%.1f%%", 100*s.Fit.OnCatalogue), How: fitWords(s)},
	}
}

func waitTile(label string, w Waits, value float64) report.Tile {
	tile := report.Tile{Label: label, Value: w.seconds(value), How: "real seconds from creation to a node, " + w.share(neverBound)}
	if w.Count > 0 {
		tile.Unit = "s"
	}
	return tile
}

func fitWords(s Summary) string {
	if s.Input.TraceNodes == 0 {
		return fmt.Sprintf("%d machine types allowed", s.Fit.CatalogueTypes)
	}
	return fmt.Sprintf("%d types allowed; on the trace's own %d machines %.1f%%", s.Fit.CatalogueTypes, s.Input.TraceNodes, 100*s.Fit.OnTraceMachines)
}

// seconds is one of the figures, or that there is none.
func (w Waits) seconds(v float64) string {
	if w.Count == 0 {
		return "none"
	}
	return fmt.Sprintf("%.2f", v)
}

// plots draws the run over trace time.
func plots(r Record) ([]report.Plot, error) {
	at := make([]float64, 0, len(r.Series))
	for _, s := range r.Series {
		at = append(at, max(0, s.At.Sub(r.Start).Seconds())*r.Speed)
	}
	values := func(of func(observe.Sample) float64) []float64 {
		all := make([]float64, 0, len(r.Series))
		for _, s := range r.Series {
			all = append(all, of(s))
		}
		return all
	}
	var nodes []report.Line
	for _, pool := range r.Series.Pools() {
		nodes = append(nodes, report.Line{Name: pool, Values: values(func(s observe.Sample) float64 { return float64(s.Nodes[pool]) })})
	}
	charts := []report.Chart{
		{Title: "Nodes by pool", Unit: "nodes", Wide: true, Stacked: true, Lines: nodes},
		{Title: "Cost", Unit: "$/h", Lines: []report.Line{{Name: "cost", Values: values(func(s observe.Sample) float64 { return s.Price })}}},
		{Title: "Power", Unit: "W, modelled", Lines: []report.Line{{Name: "power", Colour: 2, Values: values(func(s observe.Sample) float64 { return s.Watts })}}},
		{Title: "Pods", Unit: "pods", Lines: []report.Line{
			{Name: "running", Colour: 3, Values: values(func(s observe.Sample) float64 { return float64(s.Running) })},
			{Name: "pending", Colour: 2, Values: values(func(s observe.Sample) float64 { return float64(s.Pending) })},
		}},
		{Title: "Requested of allocatable", Unit: "%", Lines: []report.Line{
			{Name: "CPU", Colour: 1, Values: values(func(s observe.Sample) float64 { return 100 * s.CPU.Share() })},
			{Name: "GPU", Colour: 4, Values: values(func(s observe.Sample) float64 { return 100 * s.GPU.Share() })},
		}},
	}
	drawn := make([]report.Plot, 0, len(charts))
	for _, chart := range charts {
		chart.Seconds = at
		p, err := report.Draw(chart)
		if err != nil {
			return nil, err
		}
		drawn = append(drawn, p)
	}
	return drawn, nil
}

func waitTable(s Summary) report.Table {
	row := func(name string, w Waits) []report.Cell {
		return report.Cells(name, fmt.Sprint(w.Of), fmt.Sprint(w.Without), w.seconds(w.P50), w.seconds(w.P90), w.seconds(w.P99), w.seconds(w.Max))
	}
	return report.Table{
		How:  sentence(s.How["wait.untilBound"]) + ". The last row: " + s.How["wait.recordedInTrace"] + ".",
		Head: report.Columns("seconds", "#of pods", "#never, without a wait", "#p50", "#p90", "#p99", "#max"),
		Rows: [][]report.Cell{
			row("creation to a node (real)", s.Wait.Bound), row("… pods with GPU", s.Wait.BoundGPU), row("… pods without GPU", s.Wait.BoundNoGPU),
			row("creation to running (real)", s.Wait.Running), row("recorded in the trace (trace time)", s.Wait.Recorded),
		},
	}
}

func machineTable(s Summary) report.Table {
	t := report.Table{How: sentence(s.How["machines"]) + ".", Head: report.Columns("type", "capacity", "#opened", "#node hours", "#$")}
	for _, m := range s.Machines {
		t.Rows = append(t.Rows, report.Cells(m.Type, m.CapacityType, fmt.Sprint(m.Opened), fmt.Sprintf("%.1f", m.NodeHours), fmt.Sprintf("%.2f", m.Dollars)))
	}
	return t
}

// misfits are the tables of pods that found no machine, or a sentence when there are none.
func misfits(s Summary) report.Section {
	section := report.Section{Title: "Pods that found no machine"}
	for _, t := range []report.Table{
		misfitTable("No allowed machine of the catalogue holds it", s.How["fit"], s.Fit.Misfits),
		misfitTable("None of the trace's own machines holds it", "same rule, on the machines of "+s.Input.Nodes, s.Fit.MisfitsOnMachine),
		misfitTable("Created but never started", "last reason told by an Event of the Pod", s.Run.NeverStarted),
	} {
		if len(t.Rows) > 0 {
			section.Tables = append(section.Tables, t)
		}
	}
	if len(section.Tables) == 0 {
		section.Text = []string{"Every selected pod fits an allowed machine and was started."}
	}
	return section
}

func misfitTable(caption, how string, all []Misfit) report.Table {
	t := report.Table{Caption: fmt.Sprintf("%s: %d", caption, len(all)), How: sentence(how) + ".", Head: report.Columns("pod", "why")}
	for i, m := range all {
		if i == maxListed {
			t.Rows = append(t.Rows, report.Cells(fmt.Sprintf("… %d more", len(all)-maxListed), "in replay.json"))
			break
		}
		t.Rows = append(t.Rows, report.Cells(m.Pod, m.Why))
	}
	return t
}

func howTable(s Summary) report.Table {
	t := report.Table{Head: report.Columns("figure", "how it was computed")}
	for _, name := range sortedKeys(s.How) {
		t.Rows = append(t.Rows, report.Cells(name, s.How[name]))
	}
	return t
}
