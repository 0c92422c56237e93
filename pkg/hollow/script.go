package hollow

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// AnnotationScript says, on a Pod or Node that is simulated, what happens to it and when: steps
// separated by semicolons, each "[container:] <time> <verb> [argument]". The time counts from the
// start of the container, or from the creation of the Node.
const AnnotationScript = "simulated.mckube.io/script"

// Verb is what a step does.
type Verb string

// The verbs of Pods' scripts.
const (
	// Overrun: the container uses up its budget, with work pending, in that many periods in a row.
	Overrun Verb = "overrun"
	// Miss: that many jobs of the container end after their deadline.
	Miss Verb = "miss"
	// OverrunUntilMoved: the container overruns in every period until it has another core. A pod that takes
	// its place elsewhere has another script, or none.
	OverrunUntilMoved Verb = "overrun-until-moved"
	// OverrunWhileCrowded: from then on the container overruns in every period in which more than that many
	// percent of its core are promised.
	OverrunWhileCrowded Verb = "overrun-while-crowded"
	// MissWhileCrowded: likewise, a job of every such period ends after its deadline.
	MissWhileCrowded Verb = "miss-while-crowded"
	// Need: until the next step each job of the container needs that many percent of its period. What is
	// beyond the budget is an overrun, and a miss where no raise is granted in the same period.
	Need Verb = "need"
)

// The verbs of Nodes' scripts.
const (
	// Pressure sets the node's CPU utilisation, in percent.
	Pressure Verb = "pressure"
	// PressureEach: from then on each real-time container in force keeps the CPU busy for that many percent.
	PressureEach Verb = "pressure-each"
	// Late: each second a job of every real-time container of the node ends after its deadline, for a time
	// or from then on.
	Late Verb = "late"
	// Silent stops the agent for a time: it sees, applies and reports nothing.
	Silent Verb = "silent"
	// Granularity sets how late the end of a budget is noticed, in microseconds.
	Granularity Verb = "granularity"
	// Drift: something else changes every budget on the node, once, or again and again for a time.
	Drift Verb = "drift"
)

// Step is one step of a script.
type Step struct {
	// After is when it happens.
	After time.Duration
	// Container it happens to; empty means every real-time container of the Pod.
	Container string
	Verb      Verb
	// Number is the argument of verbs that count or measure.
	Number int64
	// For is the argument of silent, drift and late; 0 when it has none.
	For time.Duration
}

// Bounds of scripts, so that none can occupy the process.
const (
	maxSteps  = 64
	maxNumber = 10_000
	maxAfter  = 24 * time.Hour
)

// ParsePodScript reads the script of a Pod. Its error names the step and what would be right.
func ParsePodScript(script string) ([]Step, error) {
	return parse(script, func(s *Step, argument string) error {
		switch s.Verb {
		case Overrun, Miss:
			return s.number(argument, 1, maxNumber)
		case OverrunWhileCrowded, MissWhileCrowded, Need:
			return s.number(argument, 0, 100)
		case OverrunUntilMoved:
			if argument != "" {
				return fmt.Errorf("argument %q of %s: want none", argument, s.Verb)
			}
			return nil
		}
		return fmt.Errorf("%q is no verb of Pods; want overrun, overrun-until-moved, overrun-while-crowded, miss, miss-while-crowded or need", s.Verb)
	})
}

// ParseNodeScript reads the script of a Node. Its error names the step and what would be right.
func ParseNodeScript(script string) ([]Step, error) {
	return parse(script, func(s *Step, argument string) error {
		if s.Container != "" {
			return fmt.Errorf("%q names a container; want none on a Node", s.Container+":")
		}
		switch s.Verb {
		case Pressure, PressureEach:
			return s.number(argument, 0, 100)
		case Granularity:
			return s.number(argument, 1, maxNumber)
		case Silent:
			return s.duration(argument)
		case Drift, Late:
			if argument == "" {
				return nil
			}
			return s.duration(argument)
		}
		return fmt.Errorf("%q is no verb of Nodes; want pressure, pressure-each, late, silent, granularity or drift", s.Verb)
	})
}

// endless says that the step happens in every period until something is done about it, or another follows.
func (s Step) endless() bool {
	switch s.Verb {
	case OverrunUntilMoved, OverrunWhileCrowded, MissWhileCrowded:
		return true
	case Need:
		return s.Number > 0
	}
	return false
}

// parse reads steps; argument checks the verb and reads its argument.
func parse(script string, argument func(*Step, string) error) ([]Step, error) {
	var steps []Step
	for i, text := range strings.Split(script, ";") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if len(steps) == maxSteps {
			return nil, fmt.Errorf("step %d (%q): want at most %d steps", i+1, text, maxSteps)
		}
		step, err := parseStep(text, argument)
		if err != nil {
			return nil, fmt.Errorf("step %d (%q): %w", i+1, text, err)
		}
		if n := len(steps); n > 0 && step.After < steps[n-1].After {
			return nil, fmt.Errorf("step %d (%q): %s is before the step above, %s; want steps in order", i+1, text, step.After, steps[n-1].After)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func parseStep(text string, argument func(*Step, string) error) (Step, error) {
	step := Step{}
	if container, rest, found := strings.Cut(text, ":"); found {
		step.Container, text = strings.TrimSpace(container), rest
	}
	words := strings.Fields(text)
	if len(words) < 2 || len(words) > 3 {
		return step, fmt.Errorf("it has %d words; want <time> <verb> [argument]", len(words))
	}
	after, err := time.ParseDuration(words[0])
	if err != nil || after < 0 || after > maxAfter {
		return step, fmt.Errorf("time %q: want a duration from 0s to %s", words[0], maxAfter)
	}
	step.After, step.Verb = after, Verb(words[1])
	return step, argument(&step, strings.Join(words[2:], ""))
}

func (s *Step) number(text string, least, most int64) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return fmt.Errorf("argument %q of %s: want a whole number from %d to %d", text, s.Verb, least, most)
	}
	s.Number = n
	return nil
}

func (s *Step) duration(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxAfter {
		return fmt.Errorf("argument %q of %s: want a duration above 0s and at most %s", text, s.Verb, maxAfter)
	}
	s.For = d
	return nil
}
