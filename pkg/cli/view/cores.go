package view

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
)

const (
	// coreCells is the width of a core's bar, which stands for the whole core.
	coreCells = 20
	// coreColumns is the width of one core with its bar.
	coreColumns = 36
	// maxCores is how many cores of a node are drawn at most.
	maxCores = 12
)

// coreLines draws the cores of a node that has real-time work, side by side.
func coreLines(n observe.Node, width int) []string {
	cores := busiest(n.Cores)
	if len(cores) == 0 {
		return nil
	}
	perLine := max(1, (width-4)/coreColumns)
	var lines []string
	for len(cores) > 0 {
		part := cores[:min(perLine, len(cores))]
		cores = cores[len(part):]
		line := "    "
		for _, c := range part {
			line += fmt.Sprintf("core %-3d %s %3.0f%%   ", c.ID, coreBar(c), 100*c.Promised)
		}
		lines = append(lines, line)
	}
	return lines
}

// busiest are all cores, when some of them have work; of a large node, those that have.
func busiest(cores []observe.Core) []observe.Core {
	var busy []observe.Core
	for _, c := range cores {
		if len(c.Servers) > 0 {
			busy = append(busy, c)
		}
	}
	if len(busy) > 0 && len(cores) <= maxCores {
		return cores
	}
	return busy[:min(maxCores, len(busy))]
}

// coreBar draws what each container may use of a core, the most critical first, what else is promised, and what may
// never be.
func coreBar(c observe.Core) string {
	var bar strings.Builder
	drawn, sum := 0, 0.0
	draw := func(until float64, style lipgloss.Style, mark string) {
		if n := min(coreCells, int(until*coreCells+0.5)) - drawn; n > 0 {
			bar.WriteString(style.Render(strings.Repeat(mark, n)))
			drawn += n
		}
	}
	for _, s := range c.Servers {
		sum += s.Share()
		draw(sum, criticalityStyle(s.Criticality), criticalityMark(s.Criticality))
	}
	draw(max(sum, c.Promised), quietStyle, "░")
	draw(max(sum, c.Capacity), quietStyle, "·")
	draw(1, quietStyle, "×")
	return bar.String()
}

func criticalityStyle(criticality string) lipgloss.Style {
	switch criticality {
	case "High":
		return badStyle
	case "Middle":
		return waitStyle
	default:
		return goodStyle
	}
}

// criticalityMark tells criticalities apart without colours too.
func criticalityMark(criticality string) string {
	switch criticality {
	case "High":
		return "█"
	case "Middle":
		return "▓"
	default:
		return "▒"
	}
}

// coreLegend explains the bars.
const coreLegend = "cores: █ High ▓ Middle ▒ Low ░ margin · free × never promised; of the whole core"

// coreWords tells what runs on a core: "core 2 of edge-a: brake (High, 2.5ms of 10ms, hi), planner (Middle, 4ms of 10ms)".
func coreWords(n observe.Node, c observe.Core) string {
	var words []string
	for _, s := range c.Servers {
		level := ""
		if s.Level != "low" {
			level = ", " + s.Level
		}
		words = append(words, fmt.Sprintf("%s (%s, %s of %s%s)", s.Pod, s.Criticality, s.Budget, s.Period, level))
	}
	if len(words) == 0 {
		words = append(words, "empty")
	}
	return fmt.Sprintf("core %d of %s: %s", c.ID, n.Claim, strings.Join(words, ", "))
}
