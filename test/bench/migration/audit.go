package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// controllerAgent begins the name by which the controller calls itself at the API server.
const controllerAgent = "mainspring/"

// flushed is how long the API server may take to write an entry.
const flushed = 35 * time.Second

func (w *world) auditSize() int64 {
	info, err := os.Stat(w.audit)
	if err != nil {
		return 0
	}
	return info.Size()
}

// requests are those of the controller per second while nothing is asked of it.
func (w *world) requests(ctx context.Context, during time.Duration) (float64, error) {
	if err := sleep(ctx, flushed); err != nil {
		return 0, err
	}
	before := w.auditSize()
	if err := sleep(ctx, during); err != nil {
		return 0, err
	}
	n, err := w.count(before)
	return float64(n) / during.Seconds(), err
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// count is how many requests the controller has made since the log had that size.
func (w *world) count(from int64) (n int, err error) {
	file, err := os.Open(w.audit)
	if err != nil {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct {
			UserAgent string `json:"userAgent"`
		}
		if json.Unmarshal(lines.Bytes(), &entry) == nil && strings.HasPrefix(entry.UserAgent, controllerAgent) {
			n++
		}
	}
	return n, lines.Err()
}
