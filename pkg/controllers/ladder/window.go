package ladder

import (
	"slices"
	"time"
)

// buckets is the resolution of a window: it forgets events at most this part of its length late.
const buckets = 60

// window counts events of the last while.
type window struct {
	list []bucket
	// last is when events were last counted.
	last time.Time
}

// bucket counts events. The looks that found them started at begun, and the events were later than after.
type bucket struct {
	begun, after time.Time
	n            int64
}

// add is the window with n more events, which were after the last look, and without those that are older than its length.
func (w window) add(looked, now time.Time, n int64, length time.Duration) window {
	out := window{last: w.last}
	for _, b := range w.list {
		if now.Sub(b.begun) < length && !b.begun.After(now) {
			out.list = append(out.list, b)
		}
	}
	if n <= 0 {
		return out
	}
	out.last = now
	if end := len(out.list) - 1; end >= 0 && now.Sub(out.list[end].begun) < length/buckets {
		out.list = slices.Clone(out.list)
		out.list[end].n += n
		return out
	}
	out.list = append(out.list, bucket{now, looked, n})
	return out
}

// after is a time after which there were n events for certain; zero when there were fewer.
func (w window) after(n int64) time.Time {
	for _, b := range slices.Backward(w.list) {
		if n -= b.n; n <= 0 {
			return b.after
		}
	}
	return time.Time{}
}

func (w window) count() int64 {
	total := int64(0)
	for _, b := range w.list {
		total += b.n
	}
	return total
}
