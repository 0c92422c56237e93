package report

import (
	"bytes"
	"fmt"
	"html/template"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is values over time as steps: each value holds until the next one.
type Chart struct {
	Title, Unit, How string
	Seconds          []float64 // when, ascending, shared by all lines
	Lines            []Line
	Stacked          bool // lines are parts of a whole, drawn as areas on top of each other
	Marks            []ChartMark
	Wide             bool
}

// Line is one series of a chart.
type Line struct {
	Name   string
	Values []float64 // as many as Chart.Seconds
	Colour int       // series colour from 1; 0 = by its place
}

// ChartMark is a labelled moment.
type ChartMark struct {
	Second float64
	Label  string // a number or a letter: it is always drawn
	Name   string // drawn after the label where there is room before the next mark
}

const (
	chartHeight = 190
	chartWidth  = 460
	wideWidth   = 940
	fontSize    = 10
	// rightMargin is room for half of the last label.
	rightMargin = 10
)

// Draw draws a chart.
func Draw(c Chart) (Plot, error) {
	p := plot.New()
	style(p)
	top, err := c.addLines(p)
	if err != nil {
		return Plot{}, fmt.Errorf("drawing %q: %w", c.Title, err)
	}
	c.scale(p, top)
	c.addMarks(p)
	width := vg.Length(chartWidth)
	if c.Wide {
		width = wideWidth
	}
	canvas := vgsvg.New(width, chartHeight)
	p.Draw(draw.Crop(draw.New(canvas), 0, -rightMargin, 0, 0))
	var buf bytes.Buffer
	if _, err := canvas.WriteTo(&buf); err != nil {
		return Plot{}, fmt.Errorf("drawing %q: %w", c.Title, err)
	}
	// The SVG is made above from numbers and from labels that gonum escapes.
	svg := template.HTML(themed(buf.String(), c.Title))
	return Plot{Title: c.Title, Unit: c.Unit, How: c.How, Keys: c.keys(), Wide: c.Wide, SVG: svg}, nil
}

func (c Chart) colour(line int) int {
	if chosen := c.Lines[line].Colour; chosen > 0 {
		return nth(chosen)
	}
	return nth(line + 1)
}

func (c Chart) keys() []Key {
	if len(c.Lines) < 2 {
		return nil
	}
	keys := make([]Key, 0, len(c.Lines))
	for i, l := range c.Lines {
		keys = append(keys, Key{Name: l.Name, Colour: c.colour(i)})
	}
	return keys
}

// addLines adds the lines and gives their highest value.
func (c Chart) addLines(p *plot.Plot) (top float64, err error) {
	edges := [][]float64{make([]float64, len(c.Seconds))} // edges[i] is the base of line i when stacked
	for _, l := range c.Lines {
		if len(l.Values) != len(c.Seconds) {
			return 0, fmt.Errorf("line %q has %d values for %d moments", l.Name, len(l.Values), len(c.Seconds))
		}
		base := edges[0]
		if c.Stacked {
			base = edges[len(edges)-1]
		}
		upper := make([]float64, len(base))
		for k, v := range l.Values {
			upper[k] = base[k] + v
			top = max(top, upper[k])
		}
		edges = append(edges, upper)
	}
	// From the top down, so that a part of nothing does not hide the line below it.
	for i := len(c.Lines); i > 0; i-- {
		base := edges[0]
		if c.Stacked {
			base = edges[i-1]
		}
		if err := addStep(p, c.Seconds, base, edges[i], c.colour(i-1)); err != nil {
			return 0, err
		}
	}
	return top, nil
}

// addStep draws one line as steps, with the area between it and its base.
func addStep(p *plot.Plot, seconds, base, upper []float64, colour int) error {
	if len(upper) == 0 {
		return nil
	}
	edge := steps(seconds, upper)
	under := steps(seconds, base)
	ring := append(plotter.XYs{}, edge...)
	for i := len(under) - 1; i >= 0; i-- {
		ring = append(ring, under[i])
	}
	area, err := plotter.NewPolygon(ring)
	if err != nil {
		return fmt.Errorf("making area: %w", err)
	}
	area.Color, area.Width = soft(colour), 0
	line, err := plotter.NewLine(edge)
	if err != nil {
		return fmt.Errorf("making line: %w", err)
	}
	line.Color, line.Width = strong(colour), vg.Points(1.4)
	p.Add(area, line)
	return nil
}

// steps are the corners of a step line, without those in the middle of a straight piece.
func steps(x, y []float64) plotter.XYs {
	corners := plotter.XYs{{X: x[0], Y: y[0]}}
	for i := 1; i < len(x); i++ {
		if y[i] != y[i-1] {
			corners = append(corners, plotter.XY{X: x[i], Y: y[i-1]}, plotter.XY{X: x[i], Y: y[i]})
		}
	}
	end := len(x) - 1
	return append(corners, plotter.XY{X: x[end], Y: y[end]})
}

func (c Chart) scale(p *plot.Plot, top float64) {
	last := 1.0
	if len(c.Seconds) > 0 {
		p.X.Min = c.Seconds[0]
		last = c.Seconds[len(c.Seconds)-1]
	}
	p.X.Max = max(last, p.X.Min+1)
	p.Y.Min, p.Y.Max = 0, max(top*1.12, 0.001)
	if len(c.Marks) > 0 {
		p.Y.Max = max(top*1.25, 0.001)
	}
	p.X.Tick.Marker = timeTicks{}
	p.Y.Tick.Marker = valueTicks{}
}

func (c Chart) addMarks(p *plot.Plot) {
	for i, m := range c.Marks {
		next := p.X.Max
		if i+1 < len(c.Marks) {
			next = c.Marks[i+1].Second
		}
		p.Add(&mark{ChartMark: m, next: next})
	}
}

// style gives a plot the page's look.
func style(p *plot.Plot) {
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color = gridColour
		axis.Tick.Color = gridColour
		axis.Tick.Label.Color = inkColour
		axis.Tick.Label.Font = sans()
		axis.Tick.Length = 0
		axis.Padding = 3
	}
	p.X.Padding = 5
	p.Y.Width = 0
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Vertical.Width = 0
	grid.Horizontal.Color = gridColour
	grid.Horizontal.Width = vg.Points(0.6)
	p.Add(grid)
}

func sans() font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: fontSize, Weight: xfont.WeightNormal}
}

// mark draws one labelled vertical line.
type mark struct {
	ChartMark
	next float64 // second of the next mark
}

// Plot implements plot.Plotter.
func (m *mark) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	at := x(m.Second)
	line := draw.LineStyle{Color: markColour, Width: vg.Points(0.8), Dashes: []vg.Length{2, 3}}
	c.StrokeLine2(line, at, c.Min.Y, at, c.Max.Y)
	label := draw.TextStyle{
		Color: inkColour, Font: sans(), Handler: plot.DefaultTextHandler,
		XAlign: text.XLeft, YAlign: text.YTop,
	}
	words := m.Label
	if long := m.Label + " " + m.Name; m.Name != "" && label.Width(long) < x(m.next)-at-6 {
		words = long
	}
	c.FillText(label, vg.Point{X: at + 3, Y: c.Max.Y}, words)
}
