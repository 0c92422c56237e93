package limits

import (
	"fmt"
	"strings"
	"time"
)

const minutesPerDay = 24 * 60

// minutes reads a part of a day, for example "22:00-06:00", as its first minute and the one after its last.
func minutes(hours string) (from, to int, ok bool) {
	begin, end, found := strings.Cut(hours, "-")
	from, first := minuteOf(begin)
	to, last := minuteOf(end)
	return from, to, found && first && last
}

func minuteOf(clock string) (int, bool) {
	var h, m int
	if n, err := fmt.Sscanf(clock, "%2d:%2d", &h, &m); err != nil || n != 2 || h < 0 || m < 0 || m > 59 || h*60+m > minutesPerDay {
		return 0, false
	}
	return h*60 + m, true
}

// peakAt returns the part of the day that holds at a moment; empty where none does. One that ends where it begins, or
// before, goes on the next day.
func peakAt(list []string, now time.Time) string {
	now = now.UTC()
	at := now.Hour()*60 + now.Minute()
	for _, hours := range list {
		from, to, ok := minutes(hours)
		if !ok {
			continue // the API server accepts none such
		}
		if from < to && at >= from && at < to || from >= to && (at >= from || at < to) {
			return hours
		}
	}
	return ""
}

// untilEdge is how long it takes until a part of the day begins or ends; at most a day.
func untilEdge(list []string, now time.Time) time.Duration {
	now = now.UTC()
	midnight := now.Truncate(24 * time.Hour)
	next := 24 * time.Hour
	for _, hours := range list {
		from, to, ok := minutes(hours)
		if !ok {
			continue
		}
		for _, minute := range []int{from, to} {
			edge := midnight.Add(time.Duration(minute) * time.Minute)
			if !edge.After(now) {
				edge = edge.Add(24 * time.Hour)
			}
			next = min(next, edge.Sub(now))
		}
	}
	return next
}
