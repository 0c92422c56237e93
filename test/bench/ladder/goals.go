package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mainspring-rt/mainspring/test/bench/report"
)

// missed are the figures that are not as their goals want them, in words: a goal is a number, or the most or the least.
func missed(figures []report.Figure) ([]string, error) {
	var out []string
	for _, f := range figures {
		if f.Goal == "" {
			continue
		}
		relation, number, ok := strings.Cut(f.Goal, " ")
		if !ok {
			relation, number = "=", f.Goal
		}
		goal, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the goal of %s: %w", f.Key, err)
		}
		met, known := map[string]bool{"=": f.Value == goal, ">=": f.Value >= goal, "<=": f.Value <= goal}[relation]
		if !known {
			return nil, fmt.Errorf("reading the goal of %s: %q is no relation", f.Key, relation)
		}
		if !met {
			out = append(out, fmt.Sprintf("%s is %g, the goal is %s", f.Key, f.Value, f.Goal))
		}
	}
	return out, nil
}
