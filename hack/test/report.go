package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/test/timing"
)

// slowest is how many tests the table names.
const slowest = 20

// write writes the table, and tells where it is.
func (r *results) write() error {
	parts, err := r.parts()
	if err != nil {
		return err
	}
	r.printFailures()
	path := filepath.Join(outDir, reportFile)
	if err := os.WriteFile(path, []byte(r.table(parts)), 0o644); err != nil {
		return fmt.Errorf("writing the table of times: %w", err)
	}
	fmt.Fprintf(r.out, "times: %s\n", path)
	for _, t := range r.secondTries {
		fmt.Fprintf(r.out, "second try: %s\n", t)
	}
	return nil
}

// table renders the run as Markdown. Times are in seconds.
func (r *results) table(parts []timing.Part) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Test times\n\n%s, seconds.\n", r.began.UTC().Format("2006-01-02 15:04 MST"))
	r.writeSteps(&b)
	r.writeSuites(&b)
	r.writeParts(&b, parts)
	r.writeSlowest(&b)
	r.writeSecondTries(&b)
	r.writePackages(&b, parts)
	return b.String()
}

func (r *results) writeSteps(b *strings.Builder) {
	fmt.Fprint(b, "\n## Steps\n\nCPU is that of the step's processes. Idle is what all cores had left.\n\n| step | wall | CPU | idle | |\n|---|---|---|---|---|\n")
	cpu := time.Duration(0)
	for _, s := range r.steps {
		cpu += s.cpu
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", s.name, seconds(s.wall), seconds(s.cpu), seconds(s.used.idle), outcome(s.failed))
	}
	used := readMachine().since(r.start)
	fmt.Fprintf(b, "| **all** | %s | %s | %s | |\n", seconds(time.Since(r.began)), seconds(cpu), seconds(used.idle))
}

func (r *results) writeSuites(b *strings.Builder) {
	if len(r.suites) == 0 {
		return
	}
	fmt.Fprint(b, "\n## Suites\n\nSet-up and specs are sums over the processes of a suite.\n\n| suite | wall | set-up | specs | sum of specs | |\n|---|---|---|---|---|---|\n")
	for _, s := range r.suites {
		fmt.Fprintf(b, "| %s | %s | %s | %d | %s | %s |\n", s.name, seconds(s.wall), seconds(s.setup), s.specs, seconds(s.sum), outcome(s.failed))
	}
}

// writeParts sums up what repeats: builds, control planes, set-up.
func (r *results) writeParts(b *strings.Builder, parts []timing.Part) {
	walls := map[timing.Kind][]time.Duration{}
	for _, p := range parts {
		if p.Kind != timing.Program {
			walls[p.Kind] = append(walls[p.Kind], p.Wall)
		}
	}
	if len(walls) == 0 {
		return
	}
	fmt.Fprint(b, "\n## Starts\n\n| what | times | sum | median | longest |\n|---|---|---|---|---|\n")
	for _, kind := range []timing.Kind{timing.ControlPlane, timing.Build} {
		all := walls[kind]
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s |\n", kind, len(all), seconds(sum(all)), seconds(all[len(all)/2]), seconds(all[len(all)-1]))
	}
}

func sum(all []time.Duration) time.Duration {
	var total time.Duration
	for _, d := range all {
		total += d
	}
	return total
}

func (r *results) writeSlowest(b *strings.Builder) {
	tests := slices.Clone(r.tests)
	slices.SortStableFunc(tests, func(x, y testTime) int { return cmp.Compare(y.wall, x.wall) })
	fmt.Fprintf(b, "\n## The %d slowest of %d tests\n\n| test | where | wall | |\n|---|---|---|---|\n", min(slowest, len(tests)), len(tests))
	for _, t := range tests[:min(slowest, len(tests))] {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", strings.ReplaceAll(t.Name, "|", "\\|"), t.Where, seconds(t.wall), outcome(t.failed))
	}
}

func (r *results) writeSecondTries(b *strings.Builder) {
	fmt.Fprint(b, "\n## Second tries\n\n")
	if len(r.secondTries) == 0 {
		fmt.Fprint(b, "none\n")
	}
	for _, t := range r.secondTries {
		fmt.Fprintf(b, "* %s\n", t)
	}
}

// writePackages lists the packages. What a test waits for is what its processes do not compute, on one core.
func (r *results) writePackages(b *strings.Builder, parts []timing.Part) {
	cpu, wall := map[string]time.Duration{}, map[string]time.Duration{}
	for _, p := range parts {
		if p.Kind == timing.Program {
			cpu[p.Step+p.Name] += p.CPU
			wall[p.Step+p.Name] += p.Wall
		}
	}
	packages := slices.Clone(r.packages)
	slices.SortStableFunc(packages, func(x, y packageTime) int { return cmp.Compare(y.wall, x.wall) })
	fmt.Fprint(b, "\n## Packages\n\nCPU is that of the test binary and of what it started and waited for; waiting is the time in which it had less than one core.\n\n| package | step | wall | CPU | waiting | |\n|---|---|---|---|---|---|\n")
	for _, p := range packages {
		used, took := cpu[p.step+p.name], wall[p.step+p.name]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", p.name, p.step, seconds(p.wall), seconds(used), seconds(max(0, took-used)), outcome(p.failed))
	}
}

func outcome(failed bool) string {
	if failed {
		return "FAILED"
	}
	return ""
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }
