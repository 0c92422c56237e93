package main

import (
	"fmt"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/report"
)

// squeezed are the figures of the set whose high budgets do not all fit. A backend whose test refuses it has one:
// that it does.
func (r result) squeezed() []report.Figure {
	const prefix = squeeze + "_"
	var out []report.Figure
	for _, s := range r.sets {
		if !s.kind.squeezes {
			continue
		}
		a := r.admissions[s.kind.name]
		out = append(out,
			report.Figure{Key: prefix + "admitted", Value: float64(s.containers(a.own)), Note: a.String()},
			report.Figure{Key: prefix + "total_percent", Value: 100 * s.total, Note: fmt.Sprintf("of the core by high budgets; %.0f by low ones", 100*s.low)})
		if _, admitted := r.charge(s); admitted {
			out = append(append(out, r.outcomes(prefix, true, static, elastic)...), r.gaveWay(prefix)...)
		}
	}
	return out
}

// gaveWay tells what the agent did with the set that squeezes.
func (r result) gaveWay(prefix string) []report.Figure {
	var out []report.Figure
	for _, run := range r.kept(elastic, true) {
		d, w := run.agent, run.wayGiven()
		for _, f := range []report.Figure{
			{Key: "raises", Value: float64(d.Raises)},
			{Key: "partial", Value: float64(d.Partial), Note: "raises by less than was asked for"},
			{Key: "denied", Value: float64(d.Denied), Note: "overruns for which there was no room"},
			{Key: "squeezes", Value: float64(d.Squeezes), Note: "cuts of Low budgets"},
			{Key: "restored", Value: float64(w.restored), Note: "times that a Low budget was given back in full"},
			{Key: "recoveries", Value: float64(d.Recoveries), Note: "raises given back"},
			{Key: "percent_of_time", Value: w.percent, Note: "for which a Low server had less than its budget"},
			{Key: "left", Value: float64(w.left), Note: "Low servers that had less at the end"},
		} {
			f.Key = prefix + f.Key
			out = append(out, f)
		}
	}
	return out
}

// way is how Low servers gave way.
type way struct {
	restored, left int
	percent        float64
}

// wayGiven reads the budgets in force: how often each Low one came back to what it was.
func (r run) wayGiven() way {
	var w way
	looks, less := 0, 0
	for i, s := range r.set.servers {
		if s.Criticality != rt.Low {
			continue
		}
		cut := false
		for _, at := range r.budgets {
			now := at.Budgets[i] < s.Low
			if cut && !now {
				w.restored++
			}
			if now {
				less++
			}
			cut = now
			looks++
		}
		if cut {
			w.left++
		}
	}
	if looks > 0 {
		w.percent = 100 * float64(less) / float64(looks)
	}
	return w
}
