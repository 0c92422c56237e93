package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/report"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
)

func (r Record) chapterTable() report.Table {
	t := report.Table{
		How:  "A chapter ends when its goal is seen in the API; before and after are the whole cluster.",
		Head: report.Columns("chapter", "what happened, after what was done", "result", "#seconds", "#nodes", "#$/h", "#W"),
	}
	for i, result := range r.Results {
		mood := report.Good
		if result.Status != view.Done {
			mood = report.Bad
		}
		b, a := result.Before, result.After
		t.Rows = append(t.Rows, []report.Cell{
			{Text: fmt.Sprintf("%d %s", i+1, result.Chapter.Title)},
			{Text: result.Found, Note: result.Chapter.Doing},
			{Text: string(result.Status), Mood: mood},
			{Text: fmt.Sprintf("%.0f", result.Took.Seconds())},
			{Text: fmt.Sprintf("%d → %d", b.Nodes, a.Nodes)},
			{Text: fmt.Sprintf("%.2f → %.2f", b.Price, a.Price)},
			{Text: fmt.Sprintf("%.0f → %.0f", b.Watts, a.Watts)},
		})
	}
	return t
}

// budgetTable shows the most nodes that were disrupted at once, against the budget where the chapter is about one.
func (r Record) budgetTable() report.Table {
	t := report.Table{
		Caption: "Nodes disrupted at once",
		How:     "Leaving or not ready, the most at any moment of the chapter, from every watch event and not from samples.",
		Head:    report.Columns("chapter", "pool", "#most at once", "budget"),
	}
	for i, result := range r.Results {
		for _, pool := range slices.Sorted(maps.Keys(result.Peak)) {
			peak := result.Peak[pool]
			budget := report.Cell{Text: "not what this chapter is about", Mood: report.Quiet}
			if result.Budget > 0 && pool == result.BudgetPool {
				budget = report.Cell{Text: fmt.Sprintf("%d: kept", result.Budget), Mood: report.Good}
				if peak > result.Budget {
					budget = report.Cell{Text: fmt.Sprintf("%d: exceeded", result.Budget), Mood: report.Bad}
				}
			}
			t.Rows = append(t.Rows, []report.Cell{
				{Text: fmt.Sprintf("%d %s", i+1, result.Chapter.Title)}, {Text: pool}, {Text: fmt.Sprint(peak)}, budget,
			})
		}
	}
	return t
}

// coreTables show the real-time cores at the end of each chapter that ended with some.
func (r Record) coreTables() []report.Table {
	var tables []report.Table
	for i, result := range r.Results {
		if len(result.Cores) == 0 {
			continue
		}
		t := report.Table{
			Caption: fmt.Sprintf("At the end of chapter %d, %s", i+1, result.Chapter.Title),
			Head:    report.Columns("node", "core", "what is promised of the core", "containers: criticality, budget of period, level"),
		}
		for _, n := range result.Cores {
			for _, c := range n.Cores {
				t.Rows = append(t.Rows, coreRow(n, c))
			}
		}
		tables = append(tables, t)
	}
	return tables
}

// colours of criticalities are numbers of the page's series colours.
var colours = map[string]int{"High": 5, "Middle": 2, "Low": 3}

func coreRow(n observe.Node, c observe.Core) []report.Cell {
	bar := report.Cell{Text: fmt.Sprintf("%.0f %% of the core, at most %.0f %%", 100*c.Promised, 100*c.Capacity)}
	var words []string
	for _, s := range c.Servers {
		word := fmt.Sprintf("%s: %s, %s of %s, %s", s.Pod, s.Criticality, s.Budget, s.Period, s.Level)
		bar.Bar = append(bar.Bar, report.Segment{Share: s.Share(), Colour: colours[s.Criticality], Title: word})
		words = append(words, word)
	}
	return []report.Cell{{Text: n.Claim}, {Text: fmt.Sprint(c.ID)}, bar, {Text: strings.Join(words, "; ")}}
}

func (r Record) decisionTable() report.Table {
	t := report.Table{
		How:  "From the conditions of NodeClaims and the Events about them, in the order in which they were seen; what was told again is counted.",
		Head: report.Columns("#second", "what", "node", "pool", "why", "#times"),
	}
	start := r.start()
	for _, d := range r.Decisions {
		t.Rows = append(t.Rows, report.Cells(fmt.Sprintf("%.0f", max(0, d.At.Sub(start).Seconds())), string(d.Kind), d.Node, d.Pool, d.Text, fmt.Sprint(d.Count)))
	}
	return t
}

func (r Record) machineTable() report.Table {
	t := report.Table{
		How:  "Every machine that was opened, with its price and how long it was there.",
		Head: report.Columns("node", "pool", "type", "capacity", "zone", "#$/h", "#seconds", "why it left"),
	}
	for _, m := range r.Machines {
		why := report.Cell{Text: m.Why}
		if m.Gone.IsZero() {
			why = report.Cell{Text: "still there", Mood: report.Quiet}
		}
		row := report.Cells(m.Claim, m.Pool, m.Type, m.CapacityType, m.Zone, fmt.Sprintf("%.3f", m.Price), fmt.Sprintf("%.0f", m.Life(r.Made).Seconds()))
		t.Rows = append(t.Rows, append(row, why))
	}
	return t
}
