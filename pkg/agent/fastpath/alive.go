package fastpath

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
)

const (
	// turnWithin is how long a reader may take for one turn; it makes ten a second when nothing happens.
	turnWithin = 10 * time.Second
	// sweepWithin is how long a sweep may be overdue. Putting a large table in force keeps it waiting.
	sweepWithin = 2 * time.Minute
)

// Alive says what does not do its work: a reader, or the slow half. It waits for neither.
func (e *Engine) Alive() error {
	var faults []error
	now := e.Now()
	for _, id := range slices.Sorted(maps.Keys(e.cores)) {
		if late := time.Duration(now - e.cores[id].turned.Load()); late > turnWithin {
			faults = append(faults, fmt.Errorf("the reader of core %d has not come round for %s; want at most %s", id, late, turnWithin))
		}
	}
	if late := time.Duration(now - e.swept.Load()); late > sweepWithin {
		faults = append(faults, fmt.Errorf("nothing was swept for %s; want at most %s", late, sweepWithin))
	}
	if err := errors.Join(faults...); err != nil {
		return &client.StatusError{Code: http.StatusServiceUnavailable, Reason: err.Error()}
	}
	return nil
}
