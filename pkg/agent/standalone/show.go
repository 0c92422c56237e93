package standalone

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// clear goes to the upper left corner and clears the terminal from there.
const clear = "\x1b[H\x1b[2J"

// Live returns a function that draws every report over the one before.
func Live(w io.Writer, f File) func(table.Report, time.Duration) {
	return func(r table.Report, since time.Duration) {
		var b strings.Builder
		b.WriteString(clear)
		Table(&b, f, r, since)
		_, _ = io.WriteString(w, b.String())
	}
}

// Table prints a report.
func Table(w io.Writer, f File, r table.Report, since time.Duration) {
	fmt.Fprintf(w, "%s  backend %s (%s)  hook %s  lead %d us  granularity %d us\n", since.Round(100*time.Millisecond), r.Backend, r.Guarantee, r.Hook, r.LeadUs, r.GranularityUs)
	if r.Unenforced != "" {
		fmt.Fprintf(w, "not enforced: %s\n", r.Unenforced)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(w, "missing: %s\n", m)
	}
	for _, c := range r.Cores {
		fmt.Fprintf(w, "core %d: %s of %s promised, %d raised\n", c.ID, percent(c.PromisedPpm), percent(c.CapacityPpm), c.Raised)
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nSERVER\tCRITICALITY\tCORE\tBUDGET\tLOW..HI\tPERIOD\tOVERRUNS\tRAISES\tDENIED\tTHROTTLES\tMISSES\tJOBS\t")
	for _, s := range f.Servers {
		report := find(r, s.Name)
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s..%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", s.Name, s.Criticality, cores(report.Cores), ms(report.BudgetUs),
			ms(int64(s.RuntimeLow)), ms(int64(s.RuntimeHi)), ms(int64(s.Period)), report.Overruns, report.Raises, report.Denied,
			report.Throttles, report.Misses, report.Jobs, remark(report))
	}
	_ = out.Flush() // to a buffer, or to a terminal that shows nothing then
	fmt.Fprintf(w, "\nevents %d, lost %d; raised %d times", r.Events, r.Lost, raises(r))
	if n := count(r.React); n > 0 {
		fmt.Fprintf(w, "; on average %d us after the alarm was due, at most %d us, in %d measured", r.React.SumUs/n, r.React.MaxUs, n)
	}
	fmt.Fprintln(w)
}

// raises of all servers: also those that no alarm was due for, because the budget had ended already.
func raises(r table.Report) uint64 {
	sum := uint64(0)
	for _, s := range r.Servers {
		sum += s.Raises
	}
	return sum
}

// Lines returns a function that prints a line for each server of which something changed, for logs and pipes.
func Lines(w io.Writer) func(table.Report, time.Duration) {
	before := map[string]string{}
	return func(r table.Report, since time.Duration) {
		for _, s := range r.Servers {
			line := fmt.Sprintf("server=%s core=%s budgetUs=%d levelUs=%d overruns=%d raises=%d partial=%d denied=%d refused=%d squeezes=%d recoveries=%d throttles=%d misses=%d fault=%t error=%q escapes=%q",
				s.ID, cores(s.Cores), s.BudgetUs, s.LevelUs, s.Overruns, s.Raises, s.Partial, s.Denied, s.Refused, s.Squeezes, s.Recoveries,
				s.Throttles, s.Misses, s.Fault, s.Error, s.Escapes)
			if before[s.ID] == line {
				continue
			}
			before[s.ID] = line
			fmt.Fprintf(w, "t=%.1fs %s jobs=%d\n", since.Seconds(), line, s.Jobs)
		}
	}
}

func find(r table.Report, id string) table.ServerReport {
	for _, s := range r.Servers {
		if s.ID == id {
			return s
		}
	}
	return table.ServerReport{ID: id, Error: "not in force"}
}

func remark(s table.ServerReport) string {
	switch {
	case s.Error != "":
		return s.Error
	case s.Escapes != "":
		return s.Escapes
	case s.Fault:
		return "overran its highest budget again and again"
	}
	return ""
}

func count(h table.Histogram) int64 {
	total := int64(0)
	for _, n := range h.Count {
		total += int64(n)
	}
	return total
}

func cores(ids []int) string {
	if len(ids) == 0 {
		return "-"
	}
	return strings.ReplaceAll(list(ids), " ", ",")
}

func ms(us int64) string { return fmt.Sprintf("%.3gms", float64(us)/1000) }

func percent(ppm int64) string { return fmt.Sprintf("%.1f %%", float64(ppm)/10_000) }
