package demo

import (
	"fmt"
	"maps"
	"slices"

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
