package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
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
	return float64(n.sum()) / during.Seconds(), err
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

// count is how many requests the controller has made since the log had that size, by verb and resource.
func (w *world) count(from int64) (n tally, err error) {
	file, err := os.Open(w.audit)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	n = tally{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry request
		if json.Unmarshal(lines.Bytes(), &entry) == nil && strings.HasPrefix(entry.UserAgent, controllerAgent) {
			n[entry.what()]++
		}
	}
	return n, lines.Err()
}

// request is one, as the audit log has it.
type request struct {
	UserAgent string `json:"userAgent"`
	Verb      string `json:"verb"`
	Object    struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// what it is, and with which code it was refused.
func (r request) what() string {
	out := strings.TrimSuffix(r.Verb+" "+r.Object.Resource+"/"+r.Object.Subresource, "/")
	if r.Response.Code >= http.StatusBadRequest {
		out += fmt.Sprintf(" (%d)", r.Response.Code)
	}
	return out
}

// tally is how many requests there were of each kind.
type tally map[string]int

func (t tally) sum() (n int) {
	for _, of := range t {
		n += of
	}
	return n
}

// print tells how many there were for each of so many pods, the most first.
func (t tally) print(to io.Writer, pods int) {
	kinds := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Or(t[b]-t[a], strings.Compare(a, b)) })
	for _, kind := range kinds {
		_, _ = fmt.Fprintf(to, "  %6.2f %s\n", float64(t[kind])/float64(pods), kind)
	}
}
