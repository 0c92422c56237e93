package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
)

var (
	accent = lipgloss.AdaptiveColor{Light: "26", Dark: "75"}
	quiet  = lipgloss.AdaptiveColor{Light: "243", Dark: "245"}
	green  = lipgloss.AdaptiveColor{Light: "29", Dark: "78"}
	red    = lipgloss.AdaptiveColor{Light: "160", Dark: "203"}
	amber  = lipgloss.AdaptiveColor{Light: "130", Dark: "215"}

	titleStyle  = lipgloss.NewStyle().Bold(true).Foreground(accent)
	headStyle   = lipgloss.NewStyle().Bold(true)
	quietStyle  = lipgloss.NewStyle().Foreground(quiet)
	goodStyle   = lipgloss.NewStyle().Foreground(green)
	badStyle    = lipgloss.NewStyle().Foreground(red).Bold(true)
	waitStyle   = lipgloss.NewStyle().Foreground(amber)
	noticeStyle = lipgloss.NewStyle().Foreground(amber).Bold(true)
)

// Least sizes that are drawn for; a smaller terminal cuts lines.
const (
	minWidth  = 60
	minHeight = 16
	// decisionLines is how many decisions are shown when there is room.
	decisionLines = 16
)

// Render draws a frame for a terminal of the given size. The result has at most height lines of at most width columns.
func Render(f Frame, width, height int) string {
	width, height = max(width, minWidth), max(height, minHeight)
	top := header(f)
	if f.Progress.Total > 0 {
		top = append(top, progressLine(f.Progress, width))
	}
	top = append(top, "")
	top = append(top, steps(f.Steps, width)...)
	// The table gets what it needs as long as a third is left for the decisions.
	room := height - len(top) - 1
	table := nodeTable(f.State, max(3, room-max(3, room/3)), width)
	lines := append(append(top, table...), "")
	lines = append(lines, decisions(f, width, max(2, min(decisionLines, height-len(lines)-1)))...)
	if len(lines) > height {
		lines = lines[:height]
	}
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, width, "…")
	}
	return strings.Join(lines, "\n")
}

func header(f Frame) []string {
	clock := clockOf(f.Elapsed)
	if f.Limit > 0 {
		clock += " of at most " + clockOf(f.Limit)
	}
	first := titleStyle.Render("MAINSPRING  "+f.Title) + quietStyle.Render("   "+clock)
	s := f.State
	figures := []string{
		figure(fmt.Sprint(len(s.Nodes)), "nodes"),
		figure(fmt.Sprint(s.Running), "pods running"),
		figure(fmt.Sprint(s.Pending), "pending"),
		figure(fmt.Sprintf("$%.3f", s.Price()), "/h"),
		figure(fmt.Sprintf("%.0f", s.Watts()), "W"),
		figure(fmt.Sprintf("%.0f%%", 100*s.CPU().Share()), "CPU requested"),
		quietStyle.Render(fmt.Sprintf("so far $%.4f, %.2f Wh", f.Dollars, 1000*f.KWh)),
	}
	lines := []string{first, strings.Join(figures, "  ")}
	if f.Notice != "" {
		lines = append(lines, noticeStyle.Render(f.Notice))
	}
	return lines
}

func figure(value, unit string) string {
	return headStyle.Render(value) + " " + quietStyle.Render(unit)
}

func clockOf(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func progressLine(p Progress, width int) string {
	share := min(1, float64(p.Done)/float64(p.Total))
	const bar = 30
	room := min(bar, width/3)
	full := int(share * float64(room))
	return goodStyle.Render(strings.Repeat("█", full)) + quietStyle.Render(strings.Repeat("░", room-full)) +
		fmt.Sprintf(" %d of %d %s", p.Done, p.Total, p.Words)
}

// steps shows one line for each step, and what to look for in the running one.
func steps(all []Step, width int) []string {
	var lines []string
	for i, s := range all {
		number := fmt.Sprintf("%d ", i+1)
		switch s.Status {
		case Done:
			lines = append(lines, goodStyle.Render("✔ "+number+s.Title)+quietStyle.Render(took(s)+s.Outcome))
		case Failed:
			lines = append(lines, badStyle.Render("✘ "+number+s.Title)+quietStyle.Render(took(s)+s.Outcome))
		case Running:
			lines = append(lines, titleStyle.Render("▶ "+number+s.Title)+quietStyle.Render(took(s)))
			for _, line := range strings.Split(ansi.Wordwrap(s.Doing, width-6, ""), "\n") {
				lines = append(lines, "    "+line)
			}
		default:
			lines = append(lines, quietStyle.Render("· "+number+s.Title))
		}
	}
	if len(lines) > 0 {
		lines = append(lines, "")
	}
	return lines
}

func took(s Step) string { return fmt.Sprintf("  %.0f s  ", s.Took.Seconds()) }

func decisions(f Frame, width, room int) []string {
	lines := []string{headStyle.Render("Last decisions, and why")}
	shown := f.Decisions[max(0, len(f.Decisions)-room):]
	for _, d := range shown {
		lines = append(lines, decisionLine(d, width))
	}
	if len(shown) == 0 {
		lines = append(lines, quietStyle.Render("  none yet"))
	}
	return lines
}

func decisionLine(d observe.Decision, width int) string {
	text := d.Text
	if d.Count > 1 {
		text += fmt.Sprintf(" (%d times)", d.Count)
	}
	line := fmt.Sprintf("  %s %s %s  %s", quietStyle.Render(d.At.Format("15:04:05")), kindStyle(d.Kind).Render(fmt.Sprintf("%-8s", d.Kind)),
		quietStyle.Render(d.Node), text)
	return ansi.Truncate(line, width, "…")
}

func kindStyle(k observe.Kind) lipgloss.Style {
	switch k {
	case observe.Opened, observe.Joined:
		return goodStyle
	case observe.Trouble:
		return badStyle
	case observe.Closing, observe.Replace, observe.Blocked:
		return waitStyle
	default:
		return quietStyle
	}
}
