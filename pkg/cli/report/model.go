// Package report writes self-contained HTML pages: figures, tables and plots, with no reference to anything outside the
// file. Plots are SVG drawn by gonum whose colours are the page's own variables, so that they follow light and dark.
package report

import (
	"fmt"
	"html/template"
	"time"
)

// Page is one report.
type Page struct {
	Title    string
	Lead     string // one or two sentences
	Verdict  Verdict
	Tiles    []Tile
	Sections []Section
	Made     time.Time
}

// Verdict is the outcome shown beside the title; no words, no verdict.
type Verdict struct {
	Good  bool
	Words string
}

// Tile is one headline figure.
type Tile struct {
	Label, Value, Unit string
	How                string // how it was computed
}

// Section is a part of a page under its own heading.
type Section struct {
	Title  string
	Text   []string // paragraphs
	Plots  []Plot
	Tables []Table
}

// Plot is a drawn chart.
type Plot struct {
	Title, Unit string
	How         string // how its values were computed
	Keys        []Key
	Wide        bool // over the page's whole width
	SVG         template.HTML
}

// Key is one entry of a legend. Colour is the number of the page's series colour, from 1.
type Key struct {
	Name   string
	Colour int
}

// Table is rows under a head.
type Table struct {
	Caption string
	How     string // how its values were computed
	Head    []Column
	Rows    [][]Cell
}

// Column is the head of a column; numbers stand to the right.
type Column struct {
	Name   string
	Number bool
}

// Cell is one value, with a mood that colours it, a bar before it and a note below it.
type Cell struct {
	Text string
	Mood Mood
	Note string
	Bar  []Segment
}

// Segment is a part of a bar: a share of its length, in the page's series colour of that number; colour 0 is a gap.
type Segment struct {
	Share  float64
	Colour int
	Title  string // told when it is pointed at
}

// Percent is the share as CSS knows it.
func (s Segment) Percent() string { return fmt.Sprintf("%.2f%%", 100*min(1, max(0, s.Share))) }

// Mood colours a cell.
type Mood string

// The moods of cells.
const (
	Plain Mood = ""
	Good  Mood = "good"
	Bad   Mood = "bad"
	Quiet Mood = "quiet"
)

// Cells makes plain cells.
func Cells(texts ...string) []Cell {
	cells := make([]Cell, 0, len(texts))
	for _, t := range texts {
		cells = append(cells, Cell{Text: t})
	}
	return cells
}

// Columns makes heads; names that begin with "#" are columns of numbers.
func Columns(names ...string) []Column {
	columns := make([]Column, 0, len(names))
	for _, name := range names {
		if name != "" && name[0] == '#' {
			columns = append(columns, Column{Name: name[1:], Number: true})
			continue
		}
		columns = append(columns, Column{Name: name})
	}
	return columns
}
