package main

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// quantile is the smallest of the values that at least the share q of them do not exceed.
func quantile(values []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// cpuTime is the time that all threads of this process have run.
func cpuTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		panic(err) // It cannot fail for a process that asks about itself.
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
