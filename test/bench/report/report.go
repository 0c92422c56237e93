// Package report is how every benchmark of the project says what it measured: a table for people,
// a file with the environment it ran in, and one JSON object as the last line of output.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Figure is one measured value.
type Figure struct {
	// Key is the figure's name in the JSON object; the unit is its suffix.
	Key   string
	Value float64
	// Text is the value of a figure that is no number.
	Text string
	// Data is one that is no single value either: it is in the JSON object alone.
	Data any
	// Goal is what the project aims at, in words; empty where there is none.
	Goal string
	// Note says how the value came about.
	Note string
}

// Environment is what a figure cannot be compared without.
type Environment struct {
	Time      time.Time `json:"time"`
	Go        string    `json:"go"`
	OS        string    `json:"os"`
	Arch      string    `json:"arch"`
	Kernel    string    `json:"kernel"`
	CPU       string    `json:"cpu"`
	CPUs      int       `json:"cpus"`
	MemoryGiB float64   `json:"memory_gib"`
	// Load1 is the machine's load average over one minute when the benchmark started: a figure taken
	// beside other work is not a figure.
	Load1 float64 `json:"load1"`
}

// String is the environment in a line, for people.
func (e Environment) String() string {
	return fmt.Sprintf("%s: %d CPUs (%s), %.1f GiB, %s %s %s, %s, load %.2f", e.Time.Format(time.RFC3339), e.CPUs, e.CPU, e.MemoryGiB, e.OS, e.Kernel, e.Arch, e.Go, e.Load1)
}

// ReadEnvironment describes this machine now.
func ReadEnvironment() Environment {
	e := Environment{Time: time.Now().UTC(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), CPU: cpuModel()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		e.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		e.MemoryGiB = float64(info.Totalram) * float64(info.Unit) / (1 << 30)
		e.Load1 = float64(info.Loads[0]) / (1 << 16)
	}
	return e
}

func cpuModel() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// Write prints the environment and the table to w, writes path, and ends with the JSON object on one line.
func Write(w io.Writer, path string, e Environment, figures []Figure) error {
	object := map[string]any{"environment": e}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, e)
	fmt.Fprintln(table, "figure\tvalue\tgoal\thow")
	for _, f := range figures {
		if f.Data != nil {
			object[f.Key] = f.Data
			continue
		}
		value := fmt.Sprintf("%.3f", f.Value)
		object[f.Key] = f.Value
		if f.Text != "" {
			object[f.Key], value = f.Text, f.Text
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Key, value, f.Goal, f.Note)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding the figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = fmt.Fprintf(w, "%s\n", raw)
	return err
}
