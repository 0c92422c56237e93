package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

// ledger adds up what instances of the fast path count, so that counters never go back: neither
// when the fast path restarts nor, because it is kept in a file, when the agent does.
type ledger struct {
	// Instance of the fast path that the last counts are of.
	Instance string            `json:"instance"`
	Servers  map[string]*entry `json:"servers"`
	// Gone is what servers had counted that are forgotten.
	Gone   Counts    `json:"gone"`
	Events counter   `json:"events"`
	Lost   counter   `json:"lost"`
	Unseen counter   `json:"unseen"`
	Detect histogram `json:"detect"`
	React  histogram `json:"react"`
}

// entry is a server's page.
type entry struct {
	Total Counts `json:"total"`
	// Last is what the fast path last said.
	Last Counts `json:"last"`
	// LastOverrun in nanoseconds since 1970; 0 for never.
	LastOverrun int64 `json:"lastOverrun,omitempty"`
	// Compared with what RTNode.status had when the agent started.
	compared bool
}

func newLedger() *ledger { return &ledger{Servers: map[string]*entry{}} }

// follow adds a report. reported is what RTNode.status says; nil while it is not known. Servers that neither the
// report nor keep names are forgotten.
func (l *ledger) follow(r table.Report, reported map[string]v1alpha1.RTServerStatus, keep func(id string) bool) {
	restarted := l.Instance != r.Instance
	l.Instance = r.Instance
	l.Events.follow(r.Events, restarted)
	l.Lost.follow(r.Lost, restarted)
	l.Unseen.follow(r.Unseen, restarted)
	l.Detect.follow(r.Detect, restarted)
	l.React.follow(r.React, restarted)
	named := make(map[string]bool, len(r.Servers))
	for _, s := range r.Servers {
		named[s.ID] = true
		e := l.Servers[s.ID]
		if e == nil {
			e = &entry{}
			l.Servers[s.ID] = e
		}
		e.follow(countsOf(s), restarted)
		e.LastOverrun = max(e.LastOverrun, s.LastOverrun)
	}
	for id, e := range l.Servers {
		switch {
		case named[id]:
		case keep(id):
			if restarted {
				e.Last = Counts{}
			}
		default:
			l.Gone = l.Gone.plus(e.Total)
			delete(l.Servers, id)
		}
	}
	if reported != nil {
		l.compare(reported)
	}
}

// compare lifts totals to what was reported before, once for each server: a ledger that was lost begins
// where the reports ended.
func (l *ledger) compare(reported map[string]v1alpha1.RTServerStatus) {
	for id, e := range l.Servers {
		if was, ok := reported[id]; ok && !e.compared {
			e.Total.Overruns = max(e.Total.Overruns, uint64(max(was.Overruns, 0)))
			e.Total.Misses = max(e.Total.Misses, uint64(max(was.Misses, 0)))
			e.Total.Drift = max(e.Total.Drift, uint64(max(was.Drift, 0)))
			if was.LastOverrunTime != nil {
				e.LastOverrun = max(e.LastOverrun, was.LastOverrunTime.UnixNano())
			}
		}
		e.compared = true
	}
}

// maxLedger bounds the file, in bytes: 2048 servers take one million.
const maxLedger = 16 << 20

// readLedger reads a file; a new ledger when there is none. One that cannot be read is an error, and the
// new ledger is good all the same.
func readLedger(path string) (*ledger, error) {
	data, err := keptfile.Read(path, maxLedger)
	if errors.Is(err, fs.ErrNotExist) {
		return newLedger(), nil
	}
	if err != nil {
		return newLedger(), fmt.Errorf("reading the counters: %w", err)
	}
	return parseLedger(data)
}

func parseLedger(data []byte) (*ledger, error) {
	l := newLedger()
	if err := json.Unmarshal(data, l); err != nil {
		return newLedger(), fmt.Errorf("reading the counters: %w", err)
	}
	if l.Servers == nil {
		l.Servers = map[string]*entry{}
	}
	for id, e := range l.Servers {
		if e == nil {
			delete(l.Servers, id)
		}
	}
	return l, nil
}

// write replaces the file in one step.
func (l *ledger) write(path string) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the counters: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keeping the counters: %w", err)
	}
	next := path + ".new"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("keeping the counters: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("keeping the counters: %w", err)
	}
	return nil
}
