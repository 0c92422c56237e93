package report

import (
	"fmt"
	"image/color"
	"regexp"
	"strings"
)

// seriesColours is how many series colours the page's style defines.
const seriesColours = 8

// Plots are drawn with these marker colours, which are then replaced by the page's variables.
var (
	inkColour  = color.NRGBA{R: 0x10, G: 0x20, B: 0x30, A: 0xff}
	gridColour = color.NRGBA{R: 0x10, G: 0x20, B: 0x40, A: 0xff}
	markColour = color.NRGBA{R: 0x10, G: 0x20, B: 0x50, A: 0xff}
)

// strong is the marker of a series' line, soft of its area.
func strong(series int) color.Color {
	return color.NRGBA{R: 0x20, G: uint8(0x10 + nth(series)), B: 0x30, A: 0xff}
}

func soft(series int) color.Color {
	return color.NRGBA{R: 0x20, G: uint8(0x10 + nth(series)), B: 0x40, A: 0xff}
}

// nth folds any series number from 1 into the colours there are.
func nth(series int) int { return (series-1)%seriesColours + 1 }

func hex(c color.Color) string {
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02X%02X%02X", r>>8, g>>8, b>>8)
}

var (
	prolog     = regexp.MustCompile(`(?s)^.*?<svg[^>]*viewBox="([^"]*)"[^>]*>`)
	fontFamily = regexp.MustCompile(`font-family:[^;"]*;font-variant:[^;"]*;`)
)

// themed makes a drawn SVG part of a page: no prolog, no size, no font and no colour of its own.
func themed(svg, title string) string {
	svg = prolog.ReplaceAllString(svg, `<svg viewBox="$1" role="img" aria-label="`+attribute(title)+`">`)
	svg = fontFamily.ReplaceAllString(svg, "")
	pairs := []string{
		hex(inkColour), "var(--muted)",
		hex(gridColour), "var(--grid)",
		hex(markColour), "var(--mark)",
	}
	for i := 1; i <= seriesColours; i++ {
		pairs = append(pairs, hex(strong(i)), fmt.Sprintf("var(--s%d)", i))
		pairs = append(pairs, hex(soft(i)), fmt.Sprintf("var(--a%d)", i))
	}
	return strings.NewReplacer(pairs...).Replace(svg)
}

func attribute(s string) string {
	return strings.NewReplacer("&", "&amp;", `"`, "&quot;", "<", "&lt;").Replace(s)
}
