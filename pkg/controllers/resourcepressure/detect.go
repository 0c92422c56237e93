package resourcepressure

import (
	"fmt"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// setting is what nodes are judged by: that of the options, or of a MigrationPolicy for the pods that it selects.
type setting struct {
	percent  int
	interval time.Duration
}

func (s setting) threshold() float64 { return float64(s.percent) / 100 }

// clear is the usage below which a pressure is over, and down to which pods are moved.
func (s setting) clear() float64 { return float64(s.percent-clearing) / 100 }

// run is a resource of a node as the readings show it, one after another.
type run struct {
	// over is how many readings in a row were above the threshold.
	over    int
	pressed bool
	// last is the time of the reading that was counted last.
	last time.Time
}

// next is the run after one more reading. One that was counted already says nothing new. An unknown one ends the row, for
// nobody knows whether it was above, and takes nothing back.
func (r run) next(v usage.Value, s setting, samples int) run {
	switch {
	case !v.Known():
		r.over = 0
		return r
	case v.At.Equal(r.last):
		return r
	}
	r.last = v.At
	if v.Ratio <= s.threshold() {
		r.over = 0
		r.pressed = r.pressed && v.Ratio >= s.clear()
		return r
	}
	r.over = min(r.over+1, samples)
	r.pressed = r.pressed || r.over == samples
	return r
}

// track is a node under one setting.
type track struct {
	cpu, memory run
	// now is the reading that was looked at last.
	now usage.Usage
}

func (t track) next(u usage.Usage, s setting, samples int) track {
	return track{cpu: t.cpu.next(u.CPU, s, samples), memory: t.memory.next(u.Memory, s, samples), now: u}
}

func (t track) pressed() bool { return t.cpu.pressed || t.memory.pressed }

// evident tells whether the readings show the pressure now: nothing is done on what nobody knows.
func (t track) evident() bool {
	return t.cpu.pressed && t.now.CPU.Known() || t.memory.pressed && t.now.Memory.Known()
}

// reason is the pressure as one word, that of the Node's condition.
func (t track) reason() string {
	switch {
	case t.cpu.pressed && t.memory.pressed:
		return reasonBoth
	case t.cpu.pressed:
		return reasonCPU
	case t.memory.pressed:
		return reasonMemory
	}
	return reasonNone
}

// Reasons of condition ResourcePressure.
const (
	reasonCPU     = "CPU"
	reasonMemory  = "Memory"
	reasonBoth    = "CPUAndMemory"
	reasonNone    = "NoPressure"
	reasonUnknown = "UsageUnknown"
)

// resumed is a track as the Node's condition has it: another process has seen the pressure begin.
func resumed(reason string) track {
	return track{
		cpu:    run{pressed: reason == reasonCPU || reason == reasonBoth},
		memory: run{pressed: reason == reasonMemory || reason == reasonBoth},
	}
}

// words of a pressure.
func (t track) words(s setting, source string) string {
	var parts []string
	for _, r := range []struct {
		name string
		run  run
		now  usage.Value
	}{{"CPU", t.cpu, t.now.CPU}, {"memory", t.memory, t.now.Memory}} {
		switch {
		case r.run.pressed && r.now.Known():
			parts = append(parts, fmt.Sprintf("%s is at %.1f %%", r.name, r.now.Ratio*100))
		case r.run.pressed:
			parts = append(parts, r.name+" was too high, and is unknown now")
		}
	}
	return fmt.Sprintf("%s; the threshold is %d %%, and the pressure ends below %d %% (source %s)", strings.Join(parts, ", "), s.percent, s.percent-clearing, source)
}
