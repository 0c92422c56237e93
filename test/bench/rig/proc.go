package rig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// children are the processes that a process started.
func children(pid int) ([]int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, fmt.Errorf("listing children: %w", err)
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("listing children: %q is no number", field)
			}
			out = append(out, child)
		}
	}
	return out, nil
}

// CPU is the time that the threads of a process have run, by the scheduler's own account.
func CPU(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	total := time.Duration(0)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, fmt.Errorf("reading CPU time: %w", err)
		}
		ran, err := parseSchedstat(string(text))
		if err != nil {
			return 0, err
		}
		total += ran
	}
	if total == 0 {
		return 0, fmt.Errorf("process %d has no CPU time", pid)
	}
	return total, nil
}

// Monotonic is the kernel's CLOCK_MONOTONIC in nanoseconds, which tasks are started by.
func Monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the clock exists, and the pointer is good
	}
	return t.Nano()
}

// Until waits for a time of that clock.
func Until(ctx context.Context, at int64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(at - Monotonic())):
		return nil
	}
}

// parseSchedstat reads the first of three numbers: nanoseconds on a CPU.
func parseSchedstat(text string) (time.Duration, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return 0, fmt.Errorf("schedstat %q; want three numbers", text)
	}
	ns, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("schedstat %q; want three numbers", text)
	}
	return time.Duration(ns), nil
}

// Memory that a process has, in bytes: all that is resident, and of that what is its own. The rest are pages of files,
// which are one copy for all.
type Memory struct{ Resident, Own int64 }

// MemoryOf a process.
func MemoryOf(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("reading memory: %w", err)
	}
	return parseMemory(string(text))
}

func parseMemory(rollup string) (m Memory, err error) {
	for key, to := range map[string]*int64{"Rss:": &m.Resident, "Anonymous:": &m.Own} {
		if *to, err = kilobytes(rollup, key); err != nil {
			return m, err
		}
	}
	return m, nil
}

// kilobytes reads the line of a key, and returns bytes.
func kilobytes(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		value, is := strings.CutPrefix(line, key)
		if !is {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s %q; want a number of kB", key, strings.TrimSpace(value))
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("no %s; want the memory of a process that runs", key)
}
