package report

import (
	"testing"

	"gonum.org/v1/plot"
)

func TestTickLabels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		got  []string
		want []string
	}{
		"minutes": {labels(timeTicks{}, 0, 300), []string{"0:00", "1:00", "2:00", "3:00", "4:00", "5:00"}},
		"seconds": {labels(timeTicks{}, 0, 30), []string{"0:00", "0:05", "0:10", "0:15", "0:20", "0:25", "0:30"}},
		"days":    {labels(timeTicks{}, 0, 4*86400), []string{"day 0", "day 1", "day 2", "day 3", "day 4"}},
		"values":  {labels(valueTicks{}, 0, 0.5), []string{"0", "0.1", "0.2", "0.3", "0.4", "0.5"}},
		"large":   {labels(valueTicks{}, 0, 4000), []string{"0", "1000", "2000", "3000", "4000"}},
	} {
		if len(c.got) != len(c.want) {
			t.Errorf("%s: got %q, want %q", name, c.got, c.want)
			continue
		}
		for i := range c.want {
			if c.got[i] != c.want[i] {
				t.Errorf("%s: got %q, want %q", name, c.got, c.want)
			}
		}
	}
}

func labels(ticker plot.Ticker, low, high float64) []string {
	var all []string
	for _, tick := range ticker.Ticks(low, high) {
		all = append(all, tick.Label)
	}
	return all
}
