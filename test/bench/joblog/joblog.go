// Package joblog is what the benchmark's periodic program writes about its jobs, and how much work each of
// them has. All times are nanoseconds.
package joblog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
)

// Job is one job that ended.
type Job struct {
	// Release of the job on CLOCK_MONOTONIC, and how long after it the job ended.
	Release  int64
	Response int64
	// CPU is the time that the thread ran for it, Demand what was asked for.
	CPU    int64
	Demand int64
}

// MarshalJSON writes [release, response, cpu, demand].
func (j Job) MarshalJSON() ([]byte, error) {
	return json.Marshal([4]int64{j.Release, j.Response, j.CPU, j.Demand})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (j *Job) UnmarshalJSON(data []byte) error {
	var raw [4]int64
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("reading a job: %w", err)
	}
	*j = Job{raw[0], raw[1], raw[2], raw[3]}
	return nil
}

// Log is the life of one periodic task.
type Log struct {
	Name     string `json:"name"`
	Period   int64  `json:"period"`
	Deadline int64  `json:"deadline"`
	// Released is how many jobs there were to do; those that are not in Jobs had not ended when the task gave up.
	Released int   `json:"released"`
	Jobs     []Job `json:"jobs"`
}

// Misses are the jobs that ended after their deadline, or not at all.
func (l Log) Misses() int {
	n := l.Released - len(l.Jobs)
	for _, j := range l.Jobs {
		if j.Response > l.Deadline {
			n++
		}
	}
	return n
}

// Responses are the response times in milliseconds. A job that did not end counts with the time for which
// the task waited for it: from its release to the end of the last job, and at least its period.
func (l Log) Responses() []float64 {
	out := make([]float64, 0, l.Released)
	for _, j := range l.Jobs {
		out = append(out, float64(j.Response)/1e6)
	}
	if len(l.Jobs) == 0 {
		return out
	}
	last := l.Jobs[len(l.Jobs)-1]
	end := last.Release + last.Response
	for i := 1; i <= l.Released-len(l.Jobs); i++ {
		out = append(out, float64(max(end-last.Release-int64(i)*l.Period, l.Period))/1e6)
	}
	return out
}

// Write writes the log to a file.
func (l Log) Write(path string) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the log: %w", err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	return nil
}

// Read reads a log from a file.
func Read(path string) (Log, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Log{}, fmt.Errorf("reading a log: %w", err)
	}
	return Parse(raw)
}

// Parse reads a log. It refuses one that no task can have written.
func Parse(raw []byte) (Log, error) {
	var l Log
	if err := json.Unmarshal(raw, &l); err != nil {
		return Log{}, fmt.Errorf("decoding a log: %w", err)
	}
	switch {
	case l.Period <= 0:
		return Log{}, fmt.Errorf("period %d; want above 0", l.Period)
	case l.Deadline <= 0:
		return Log{}, fmt.Errorf("deadline %d; want above 0", l.Deadline)
	case l.Released < len(l.Jobs) || l.Released > MaxJobs:
		return Log{}, fmt.Errorf("released %d; want from the %d jobs that ended to %d", l.Released, len(l.Jobs), MaxJobs)
	}
	return l, nil
}

// MaxJobs is the most jobs that a task may have.
const MaxJobs = 10_000_000

// Demand is how much CPU time jobs need.
type Demand struct {
	// Least and Most of an ordinary job, uniform between.
	Least, Most int64
	// Probability that a job overruns, and what such a job needs, uniform between the two.
	Probability             float64
	OverrunLeast, OverrunTo int64
	// Ramp is how much more each ordinary job needs than the one before.
	Ramp int64
	// Of every BurstEvery jobs only the Burst ones from the middle on may overrun; 0: any may.
	BurstEvery, Burst int
}

// Validate says what is wrong: the field, its value, what would be right.
func (d Demand) Validate() error {
	switch {
	case d.Least <= 0:
		return fmt.Errorf("least work %d; want above 0", d.Least)
	case d.Most < d.Least:
		return fmt.Errorf("most work %d; want at least the least, %d", d.Most, d.Least)
	case d.Ramp < 0:
		return fmt.Errorf("ramp %d; want at least 0", d.Ramp)
	case d.Probability < 0 || d.Probability > 1:
		return fmt.Errorf("overrun probability %v; want 0 to 1", d.Probability)
	case d.Probability > 0 && (d.OverrunLeast <= 0 || d.OverrunTo < d.OverrunLeast):
		return fmt.Errorf("overruns from %d to %d; want an interval above 0", d.OverrunLeast, d.OverrunTo)
	case d.BurstEvery < 0 || d.Burst < 0 || d.Burst > (d.BurstEvery+1)/2:
		return fmt.Errorf("bursts of %d in %d jobs; want 0 to half of the latter", d.Burst, d.BurstEvery)
	}
	return nil
}

// mayOverrun says whether a job is in a burst of overruns.
func (d Demand) mayOverrun(i int) bool {
	if d.BurstEvery == 0 {
		return true
	}
	after := i%d.BurstEvery - d.BurstEvery/2
	return after >= 0 && after < d.Burst
}

// Draw is the work of n jobs; the same seed gives the same jobs.
func (d Demand) Draw(seed uint64, n int) []int64 {
	r := rand.New(rand.NewPCG(seed, 0x6a6f6273))
	out := make([]int64, n)
	for i := range out {
		from, to := d.Least+int64(i)*d.Ramp, d.Most+int64(i)*d.Ramp
		if r.Float64() < d.Probability && d.mayOverrun(i) {
			from, to = d.OverrunLeast, d.OverrunTo
		}
		out[i] = from + r.Int64N(to-from+1)
	}
	return out
}
