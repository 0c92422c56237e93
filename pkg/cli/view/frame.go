// Package view shows a running story on a terminal: live when there is one, as plain lines when there is none.
//
// Both are fed with Frames: the state of everything at one moment. Frame in, text out; nothing here touches a cluster.
package view

import (
	"time"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
)

// Status is where a step of the story stands.
type Status string

// The statuses of steps.
const (
	Waiting Status = "waiting"
	Running Status = "running"
	Done    Status = "done"
	Failed  Status = "FAILED"
)

// Step is one part of the story.
type Step struct {
	Title   string
	Doing   string // what is done and what to look for, while it runs
	Outcome string // what happened, once it ended
	Status  Status
	Took    time.Duration // so far or in all
}

// Progress is how much of a counted work is done; no total, no bar.
type Progress struct {
	Done, Total int
	Words       string // what is counted, and more
}

// Frame is everything the view shows of one moment.
type Frame struct {
	Title     string
	Elapsed   time.Duration
	Limit     time.Duration // 0 = none
	State     observe.State
	Dollars   float64 // spent so far
	KWh       float64 // used so far
	Decisions []observe.Decision
	Steps     []Step
	Progress  Progress
	Notice    string // one line that matters now, for example that everything is being cleaned up
}
