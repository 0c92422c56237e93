package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// longestWindow is how long a window may be open, and shortestWindow how long it must.
const (
	longestWindow  = 7 * 24 * time.Hour
	shortestWindow = time.Minute
)

// fiveFields are minute, hour, day of the month, month, day of the week; no @daily, no seconds.
var fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// window opens by a schedule in UTC and is open for a while.
type window struct {
	opens    cron.Schedule
	duration time.Duration
}

func parseWindow(w v1alpha1.MigrationWindow) (window, error) {
	opens, err := parseSchedule(w.Schedule)
	if err != nil {
		return window{}, err
	}
	return window{opens: opens, duration: w.Duration.Duration}, nil
}

func parseSchedule(text string) (cron.Schedule, error) {
	if strings.Contains(text, "TZ=") { // the parser would read a time zone, and does not survive some
		return nil, errors.New("it names a time zone; it is in UTC, and must be five fields: minute hour day-of-month month day-of-week")
	}
	opens, err := fiveFields.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w; it must be five fields: minute hour day-of-month month day-of-week, for example \"0 2 * * 6\"", err)
	}
	if opens.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("it never opens: there is no such day")
	}
	return opens, nil
}

// open tells whether it is, from when it opens until, exclusively, its duration is over.
func (w window) open(now time.Time) bool {
	opened := w.opens.Next(now.UTC().Add(-w.duration))
	return !opened.IsZero() && !opened.After(now)
}

// windows that are none are always open.
type windows []window

// closed is the reason why none is open; empty: one is.
func (all windows) closed(now time.Time) string {
	if len(all) == 0 {
		return ""
	}
	var next time.Time
	for _, w := range all {
		if w.open(now) {
			return ""
		}
		if at := w.opens.Next(now.UTC()); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return fmt.Sprintf("no window is open; the next one opens at %s", next.Format(time.RFC3339))
}
