package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// width is that of a line of text, where words allow.
const width = 118

// JSON writes the report for machines.
func (r Report) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// Text writes the report for people: what is worst first, and in the order of the checks otherwise.
func (r Report) Text(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "Linux %s, backend %s, real-time cores %s\n", orNone(r.Kernel), r.Backend, orNone(r.Cores))
	findings := slices.Clone(r.Findings)
	slices.SortStableFunc(findings, func(a, b Finding) int { return b.Severity.weight() - a.Severity.weight() })
	for _, f := range findings {
		f.text(&out)
	}
	fmt.Fprintf(&out, "\n%d problems, %d warnings, %d notes, %d ok\n", r.Counts[Problem], r.Counts[Warning], r.Counts[Note], r.Counts[OK])
	_, err := io.WriteString(w, out.String())
	return err
}

// Problems says that something must be mended.
func (r Report) Problems() bool { return r.Counts[Problem] > 0 }

func (s Severity) weight() int { return slices.Index([]Severity{OK, Note, Warning, Problem}, s) }

func (f Finding) text(out *strings.Builder) {
	const indent = "                           "
	fmt.Fprintf(out, "\n%-8s %-17s ", f.Severity, f.Name)
	wrap(out, indent, f.Means)
	for _, r := range f.Read {
		fmt.Fprintf(out, "%sread: ", indent)
		wrap(out, indent+"      ", r.Where+" = "+r.What)
	}
	if f.Mend != "" {
		fmt.Fprintf(out, "%smend: ", indent)
		wrap(out, indent+"      ", f.Mend)
	}
}

// wrap writes words, of which the first line begins where the writer stands, below the indent.
func wrap(out *strings.Builder, indent, text string) {
	at := len(indent)
	for i, word := range strings.Fields(text) {
		switch {
		case i > 0 && at+1+len(word) > width:
			out.WriteString("\n" + indent)
			at = len(indent)
		case i > 0:
			out.WriteByte(' ')
			at++
		}
		out.WriteString(word)
		at += len(word)
	}
	out.WriteByte('\n')
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
