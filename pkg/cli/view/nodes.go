package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/text"
)

// wideTerminal is from how many columns on the names of instance types are shown in full.
const wideTerminal = 136

// nodeTable shows the nodes by pool in at most room lines.
func nodeTable(s observe.State, room, width int) []string {
	typeWidth := 18
	if width >= wideTerminal {
		typeWidth = 27
	}
	lines := []string{quietStyle.Render(fmt.Sprintf("%-24s %-*s %-10s %-12s %8s %6s %6s %-15s %4s  %s",
		"node", typeWidth, "type", "capacity", "zone", "$/h", "W", "age", "CPU requested", "pods", "state"))}
	for _, pool := range poolOrder(s) {
		nodes := s.Pool(pool)
		lines = append(lines, poolLine(pool, nodes))
		legend := quietStyle.Render("    " + coreLegend)
		for _, n := range nodes {
			lines = append(lines, nodeLine(n, s.At, typeWidth))
			bars := coreLines(n, width)
			if len(bars) > 0 && legend != "" {
				lines, legend = append(lines, legend), ""
			}
			lines = append(lines, bars...)
		}
	}
	if len(lines) == 1 {
		return append(lines, quietStyle.Render("  no nodes"))
	}
	if len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(lines[:room-1], quietStyle.Render(fmt.Sprintf("  … %d more lines", hidden)))
	}
	return lines
}

// poolOrder is all pools, those with real-time work first: their cores must not be what a small terminal hides.
func poolOrder(s observe.State) []string {
	pools := s.Pools()
	idle := func(pool string) bool {
		return !slices.ContainsFunc(s.Pool(pool), func(n observe.Node) bool { return len(busiest(n.Cores)) > 0 })
	}
	return append(slices.DeleteFunc(slices.Clone(pools), idle), slices.DeleteFunc(pools, func(p string) bool { return !idle(p) })...)
}

func poolLine(name string, nodes []observe.Node) string {
	part := observe.State{Nodes: nodes}
	words := fmt.Sprintf("  %s  $%.3f/h  %.0f W  %.0f%% CPU requested", text.Plural(len(nodes), "node"), part.Price(), part.Watts(), 100*part.CPU().Share())
	return headStyle.Render(name) + quietStyle.Render(words)
}

func nodeLine(n observe.Node, now time.Time, typeWidth int) string {
	line := fmt.Sprintf("  %-22s %-*s %-10s %-12s %8.3f %6.0f %6s %s %4d  ",
		clip(n.Claim, 22), typeWidth, clip(n.Type, typeWidth), n.CapacityType, clip(n.Zone, 12), n.Price, n.Watts(), ageOf(n.Age(now)), bar(n.CPU.Share()), n.Pods)
	state := string(n.Phase)
	if n.Why != "" {
		state += ": " + n.Why
	}
	return line + phaseStyle(n.Phase).Render(state)
}

func phaseStyle(p observe.Phase) lipgloss.Style {
	switch p {
	case observe.Ready:
		return goodStyle
	case observe.NotReady:
		return badStyle
	default:
		return waitStyle
	}
}

// bar draws a share in ten columns with its percentage.
func bar(share float64) string {
	full := min(10, int(share*10+0.5))
	return goodStyle.Render(strings.Repeat("▰", full)) + quietStyle.Render(strings.Repeat("▱", 10-full)) + fmt.Sprintf(" %3.0f%%", share*100)
}

func ageOf(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	default:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
}

func clip(s string, width int) string {
	if len(s) <= width {
		return s
	}
	return s[:width-1] + "…"
}
