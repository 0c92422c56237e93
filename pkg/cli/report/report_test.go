package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/cli/report"
)

var made = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func sample(t *testing.T) report.Page {
	t.Helper()
	seconds := []float64{0, 10, 20, 30, 40, 50}
	nodes, err := report.Draw(report.Chart{
		Title: "Nodes <by> \"pool\"", Unit: "nodes", How: "how", Seconds: seconds, Stacked: true, Wide: true,
		Lines: []report.Line{{Name: "general", Values: []float64{0, 1, 4, 4, 2, 2}}, {Name: "gpu & more", Values: []float64{0, 0, 1, 1, 1, 0}}},
		Marks: []report.ChartMark{{Second: 5, Label: "1"}, {Second: 25, Label: "2"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cost, err := report.Draw(report.Chart{Title: "Cost", Unit: "$/h", Seconds: seconds, Lines: []report.Line{{Name: "cost", Values: []float64{0, .1, .5, .5, .3, .2}}}})
	if err != nil {
		t.Fatal(err)
	}
	return report.Page{
		Title: "Demo", Lead: "A lead with <script>alert(1)</script>.", Verdict: report.Verdict{Good: true, Words: "6 of 6"}, Made: made,
		Tiles: []report.Tile{{Label: "Cost", Value: "0.12", Unit: "$", How: "integral"}},
		Sections: []report.Section{{
			Title: "Over time", Text: []string{"text"}, Plots: []report.Plot{nodes, cost},
			Tables: []report.Table{{Caption: "Chapters", Head: report.Columns("chapter", "#seconds"), Rows: [][]report.Cell{report.Cells("scale-up", "12.3")}}},
		}, {Title: "Environment", Tables: []report.Table{report.Environment()}}},
	}
}

func render(t *testing.T, p report.Page) string {
	t.Helper()
	var buf bytes.Buffer
	if err := report.Write(&buf, p); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func TestPageNeedsNothingButItself(t *testing.T) {
	t.Parallel()
	html := render(t, sample(t))
	for _, outside := range []string{"http://", "https://", "//cdn", "src=", "href=", "@import", "url(", "<script", "<link"} {
		if strings.Contains(html, outside) {
			t.Errorf("the page contains %q", outside)
		}
	}
	if colours := regexp.MustCompile(`(fill|stroke):#`).FindAllString(html, -1); len(colours) > 0 {
		t.Errorf("%d colours of plots do not follow the page's", len(colours))
	}
}

func TestPageIsWellFormed(t *testing.T) {
	t.Parallel()
	html := render(t, sample(t))
	decoder := xml.NewDecoder(strings.NewReader(html))
	decoder.Strict = false
	decoder.AutoClose = []string{"meta"}
	decoder.Entity = xml.HTMLEntity
	svgs, depth := 0, 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			depth++
			if e.Name.Local == "svg" {
				svgs++
			}
		case xml.EndElement:
			depth--
		}
	}
	if svgs != 2 || depth != 0 {
		t.Errorf("%d plots, %d elements open at the end", svgs, depth)
	}
}

func TestWritesTheFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	path, err := report.WriteFile(dir, sample(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil || filepath.Base(path) != "index.html" {
		t.Errorf("%s: %v", path, err)
	}
}

func TestRaggedTableIsRefused(t *testing.T) {
	t.Parallel()
	p := report.Page{Sections: []report.Section{{Title: "s", Tables: []report.Table{{
		Caption: "c", Head: report.Columns("a", "b"), Rows: [][]report.Cell{report.Cells("only one")},
	}}}}}
	if err := report.Write(io.Discard, p); err == nil || !strings.Contains(err.Error(), "row 1 has 1 cells, want 2") {
		t.Errorf("got %v", err)
	}
}

func TestLineOfAnotherLengthIsRefused(t *testing.T) {
	t.Parallel()
	_, err := report.Draw(report.Chart{Title: "c", Seconds: []float64{0, 1}, Lines: []report.Line{{Name: "l", Values: []float64{1}}}})
	if err == nil || !strings.Contains(err.Error(), `line "l" has 1 values for 2 moments`) {
		t.Errorf("got %v", err)
	}
}

// Any values, however many, flat or huge, give a plot with finite coordinates.
func TestDrawsAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "n")
		chart := report.Chart{Title: "c", Stacked: rapid.Bool().Draw(t, "stacked")}
		at := 0.0
		for range n {
			chart.Seconds = append(chart.Seconds, at)
			at += rapid.Float64Range(0, 1e6).Draw(t, "gap")
		}
		for range rapid.IntRange(0, 10).Draw(t, "lines") {
			values := rapid.SliceOfN(rapid.Float64Range(0, 1e9), n, n).Draw(t, "values")
			chart.Lines = append(chart.Lines, report.Line{Name: "l", Values: values})
		}
		p, err := report.Draw(chart)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(p.SVG), "NaN") || strings.Contains(string(p.SVG), "Inf") {
			t.Fatalf("coordinates are not finite: %s", p.SVG)
		}
	})
}
