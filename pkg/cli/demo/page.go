package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/report"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
)

// Record is what a told story leaves behind.
type Record struct {
	Results   []Result
	Series    observe.Series
	Marks     []observe.Mark
	Machines  []observe.Machine
	Decisions []observe.Decision
	Made      time.Time
}

// Record collects what was told and seen.
func (t *Teller) Record() Record {
	return Record{
		Results: t.Results(), Series: t.Recorder.Series(), Marks: t.Recorder.Marks(), Machines: t.Recorder.Machines(),
		Decisions: t.Recorder.Decisions(maxDecisions), Made: t.Clock.Now(),
	}
}

// maxDecisions bounds the decisions that the page lists.
const maxDecisions = 300

func (r Record) reached() int {
	count := 0
	for _, result := range r.Results {
		if result.Status == view.Done {
			count++
		}
	}
	return count
}

// Summary prints the chapters as a table, and what happened in each below it.
func (r Record) Summary(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHAPTER\tRESULT\tSECONDS\tNODES\t$/h\tW")
	for i, result := range r.Results {
		b, a := result.Before, result.After
		fmt.Fprintf(table, "%d %s\t%s\t%.0f\t%d -> %d\t%.2f -> %.2f\t%.0f -> %.0f\n", i+1, result.Chapter.Title, result.Status, result.Took.Seconds(),
			b.Nodes, a.Nodes, b.Price, a.Price, b.Watts, a.Watts)
	}
	table.Flush()
	fmt.Fprintln(out)
	for i, result := range r.Results {
		fmt.Fprintf(out, "%d %s\n", i+1, result.Found)
	}
	fmt.Fprintf(out, "\n%d of %d chapters reached their goal in %.0f s; %d machines were opened; spent $%.4f and %.2f Wh (modelled)\n",
		r.reached(), len(r.Results), r.Series.Span().Seconds(), len(r.Machines), r.Series.Dollars(), 1000*r.Series.KWh())
}

// Page makes the HTML report.
func (r Record) Page(environment ...[]report.Cell) (report.Page, error) {
	plots, err := r.plots()
	if err != nil {
		return report.Page{}, err
	}
	reached := r.reached()
	return report.Page{
		Title: "Demo", Made: r.Made,
		Lead: "The life of nodes on a real Kubernetes control plane with simulated machines: opened for pending pods, consolidated, rolled, " +
			"interrupted, repaired and expired; and of real-time containers on their cores. Every figure is read from the API while it happens.",
		Verdict: report.Verdict{Good: reached == len(r.Results), Words: fmt.Sprintf("%d of %d chapters reached their goal", reached, len(r.Results))},
		Tiles:   r.tiles(),
		Sections: []report.Section{
			{Title: "Over time", Text: []string{"Dotted lines are the beginnings of the chapters; time is minutes and seconds of the demo."}, Plots: plots},
			{Title: "Chapters", Tables: []report.Table{r.chapterTable(), r.budgetTable()}},
			{Title: "Real-time cores", Tables: r.coreTables(), Text: []string{"At the end of each chapter that ended with some. Red is High, orange Middle, green Low: the budgets in force, from the status of RTNodes. The promise " +
				"includes the time by which a budget may be overrun; what is left of the core beyond its capacity is never promised."}},
			{Title: "Every decision, and why", Tables: []report.Table{r.decisionTable()}},
			{Title: "Machines", Tables: []report.Table{r.machineTable()}},
			{Title: "Environment", Tables: []report.Table{report.Environment(environment...)}},
		},
	}, nil
}

func (r Record) tiles() []report.Tile {
	price := func(s observe.Sample) float64 { return s.Price }
	return []report.Tile{
		{Label: "Duration", Value: fmt.Sprintf("%.0f", r.Series.Span().Seconds()), Unit: "s", How: "first to last sample"},
		{Label: "Machines opened", Value: fmt.Sprint(len(r.Machines)), How: fmt.Sprintf("at most %.0f at once", r.Series.Peak(func(s observe.Sample) float64 { return float64(s.Count()) }))},
		{Label: "Spent", Value: fmt.Sprintf("%.4f", r.Series.Dollars()), Unit: "$", How: fmt.Sprintf("price of each machine from order to removal, sampled; at most $%.2f/h", r.Series.Peak(price))},
		{Label: "Energy", Value: fmt.Sprintf("%.1f", 1000*r.Series.KWh()), Unit: "Wh", How: "modelled: requests of CPU drive the host's watts, requests of GPUs and NPUs the devices'"},
	}
}

func (r Record) start() time.Time {
	if len(r.Series) == 0 {
		return r.Made
	}
	return r.Series[0].At
}

func (r Record) plots() ([]report.Plot, error) {
	start := r.start()
	var at []float64
	for _, s := range r.Series {
		at = append(at, s.At.Sub(start).Seconds())
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
	drawn := []report.Plot{}
	for _, chart := range []report.Chart{
		{Title: "Nodes by pool", Unit: "nodes", Wide: true, Stacked: true, Lines: nodes, How: "NodeClaims that exist, from order to removal; sampled every half second"},
		{Title: "Cost", Unit: "$/h", Lines: []report.Line{{Name: "cost", Values: values(func(s observe.Sample) float64 { return s.Price })}}, How: "sum of the prices of the machines' offerings"},
		{Title: "Power", Unit: "W", Lines: []report.Line{{Name: "power", Colour: 2, Values: values(func(s observe.Sample) float64 { return s.Watts })}}, How: "modelled from idle and maximum watts of each machine's host and devices and what is requested of both"},
		{Title: "Pods pending", Unit: "pods", Lines: []report.Line{{Name: "pending", Colour: 5, Values: values(func(s observe.Sample) float64 { return float64(s.Pending) })}}, How: "pods that do not run yet"},
		{Title: "Pods running", Unit: "pods", Lines: []report.Line{{Name: "running", Colour: 3, Values: values(func(s observe.Sample) float64 { return float64(s.Running) })}}, How: "pods whose phase is Running"},
	} {
		chart.Seconds, chart.Marks = at, r.chartMarks(start)
		p, err := report.Draw(chart)
		if err != nil {
			return nil, err
		}
		drawn = append(drawn, p)
	}
	return drawn, nil
}

// chartMarks are the beginnings of the chapters.
func (r Record) chartMarks(start time.Time) []report.ChartMark {
	marks := make([]report.ChartMark, 0, len(r.Marks))
	for i, m := range r.Marks {
		mark := report.ChartMark{Second: m.At.Sub(start).Seconds(), Label: m.Label}
		if i < len(r.Results) {
			mark.Name = r.Results[i].Chapter.Short
		}
		marks = append(marks, mark)
	}
	return marks
}
