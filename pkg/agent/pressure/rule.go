// Package pressure measures how busy a node's CPUs are: their utilisation, node-wide and of each core, the
// rule that calls a node busy, and the kernel's pressure stall information where there is any. It
// returns values; others publish them.
package pressure

import (
	"errors"
	"fmt"
	"time"
)

// Rule says when a node counts as busy, and when no longer.
type Rule struct {
	// BusyPercent is the utilisation at or above which, for BusyFor, a node becomes busy; 1 to 100.
	BusyPercent int32
	BusyFor     time.Duration
	// CalmPercent is the utilisation below which, for CalmFor, a node is no longer busy; 1 to BusyPercent.
	CalmPercent int32
	CalmFor     time.Duration
}

// DefaultRule is that of MC-Kube's CPU agent: 90 % for 5 s, in both directions.
func DefaultRule() Rule {
	return Rule{BusyPercent: 90, BusyFor: 5 * time.Second, CalmPercent: 90, CalmFor: 5 * time.Second}
}

// Validate says what is wrong with a rule; all faults are joined.
func (r Rule) Validate() error {
	var faults []error
	if r.BusyPercent < 1 || r.BusyPercent > 100 {
		faults = append(faults, fmt.Errorf("busyPercent %d; want 1 to 100", r.BusyPercent))
	}
	if r.CalmPercent < 1 || r.CalmPercent > r.BusyPercent {
		faults = append(faults, fmt.Errorf("calmPercent %d; want 1 to busyPercent %d", r.CalmPercent, r.BusyPercent))
	}
	if r.BusyFor < 0 {
		faults = append(faults, fmt.Errorf("busyFor %s; want 0 or more", r.BusyFor))
	}
	if r.CalmFor < 0 {
		faults = append(faults, fmt.Errorf("calmFor %s; want 0 or more", r.CalmFor))
	}
	return errors.Join(faults...)
}

// verdict is where a node stands under a rule.
type verdict struct {
	busy bool
	// busySince, overSince and calmSince are zero while they do not hold.
	busySince, overSince, calmSince time.Time
}

// judge takes a utilisation, in millionths, that was measured from begin to end.
func (v verdict) judge(r Rule, used int64, begin, end time.Time) verdict {
	v.overSince = since(v.overSince, begin, used >= int64(r.BusyPercent)*percent)
	v.calmSince = since(v.calmSince, begin, used < int64(r.CalmPercent)*percent)
	switch {
	case !v.busy && !v.overSince.IsZero() && end.Sub(v.overSince) >= r.BusyFor:
		v.busy, v.busySince = true, end
	case v.busy && !v.calmSince.IsZero() && end.Sub(v.calmSince) >= r.CalmFor:
		v.busy, v.busySince = false, time.Time{}
	}
	return v
}

// since is when something began that holds now, and the zero time when it does not.
func since(before, begin time.Time, holds bool) time.Time {
	switch {
	case !holds:
		return time.Time{}
	case before.IsZero():
		return begin
	}
	return before
}
