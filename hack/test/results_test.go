package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/mainspring-rt/mainspring/pkg/test/timing"
)

// inEmptyDir begins a run in a directory of its own.
func inEmptyDir(t *testing.T, list secondTries) (*results, *bytes.Buffer) {
	t.Helper()
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	r, err := newResults(&out, list)
	if err != nil {
		t.Fatal(err)
	}
	return r, &out
}

const goEvents = `{"Action":"run","Package":"github.com/mainspring-rt/mainspring/pkg/rt","Test":"TestA"}
{"Action":"pass","Package":"github.com/mainspring-rt/mainspring/pkg/rt","Test":"TestA/sub","Elapsed":1}
{"Action":"pass","Package":"github.com/mainspring-rt/mainspring/pkg/rt","Test":"TestA","Elapsed":1.5}
{"Action":"fail","Package":"github.com/mainspring-rt/mainspring/pkg/rt","Test":"TestB","Elapsed":0.5}
{"Action":"fail","Package":"github.com/mainspring-rt/mainspring/pkg/rt","Elapsed":2}
{"Action":"build-output","ImportPath":"github.com/mainspring-rt/mainspring/pkg/host [github.com/mainspring-rt/mainspring/pkg/host.test]","Output":"broken\n"}
{"Action":"fail","Package":"github.com/mainspring-rt/mainspring/pkg/host","Elapsed":0}
{"Action":"run","Package":"github.com/mainspring-rt/mainspring/pkg/agent","Test":"TestC"}
{"Action":"output","Package":"github.com/mainspring-rt/mainspring/pkg/agent","Test":"TestC","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"github.com/mainspring-rt/mainspring/pkg/agent","Elapsed":3}
`

func TestGoTestsAreRead(t *testing.T) {
	r, _ := inEmptyDir(t, nil)
	failed, err := r.readGoTests("race", strings.NewReader(goEvents))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range failed {
		got = append(got, f.String())
	}
	if want := []string{"pkg/rt TestB", "pkg/host outside of its tests", "pkg/agent TestC"}; !slices.Equal(got, want) {
		t.Errorf("failed: %q, want %q", got, want)
	}
	if len(r.tests) != 2 || len(r.packages) != 3 || r.tests[0].wall != 1500*time.Millisecond {
		t.Errorf("tests %+v, packages %+v", r.tests, r.packages)
	}
}

// A package prints much after the test that failed, and a test prints logs after its messages.
func TestFailureShowsTheMessagesOfTheTestThatFailed(t *testing.T) {
	r, _ := inEmptyDir(t, nil)
	var events strings.Builder
	line := func(test, output string) {
		content, err := json.Marshal(event{Action: "output", Package: module + "pkg/rt", Test: test, Output: output + "\n"})
		if err != nil {
			t.Fatal(err)
		}
		events.Write(append(content, '\n'))
	}
	line("TestA/sub", "    a_test.go:3: refused")
	for i := range 2 * keptLines {
		line("TestA", fmt.Sprint("log ", i))
		line("TestB", "passes")
	}
	for _, e := range []event{{Action: "pass", Test: "TestB"}, {Action: "fail", Test: "TestA"}, {Action: "fail"}} {
		content, err := json.Marshal(event{Action: e.Action, Package: module + "pkg/rt", Test: e.Test})
		if err != nil {
			t.Fatal(err)
		}
		events.Write(append(content, '\n'))
	}
	if _, err := r.readGoTests("unit", strings.NewReader(events.String())); err != nil {
		t.Fatal(err)
	}
	got := r.failures[0].output
	if len(got) != keptLines+1 || got[0] != "    a_test.go:3: refused" || got[1] != fmt.Sprint("log ", keptLines) || slices.Contains(got, "passes") {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

func TestGinkgoReportsAreRead(t *testing.T) {
	r, _ := inEmptyDir(t, nil)
	report := []types.Report{{
		SuitePath: "/somewhere/test/suites/ladder", RunTime: 9 * time.Second,
		SpecReports: types.SpecReports{
			{LeafNodeType: types.NodeTypeSynchronizedBeforeSuite, RunTime: 2 * time.Second, State: types.SpecStatePassed},
			{LeafNodeType: types.NodeTypeIt, LeafNodeText: "holds", RunTime: 3 * time.Second, State: types.SpecStatePassed},
			{LeafNodeType: types.NodeTypeIt, LeafNodeText: "fails", RunTime: 4 * time.Second, State: types.SpecStateFailed, Failure: types.Failure{Message: "too late", Location: types.CodeLocation{FileName: "x_test.go", LineNumber: 7}}},
			{LeafNodeType: types.NodeTypeIt, LeafNodeText: "was not asked for", State: types.SpecStateSkipped},
		},
	}, {SuitePath: "/somewhere/test/suites/node", SuiteSucceeded: false}}
	content, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ladder_"+reportName), content, 0o600); err != nil {
		t.Fatal(err)
	}
	failed, err := r.readGinkgo(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(failed) != 2 || failed[0].String() != "ladder fails" || failed[1].String() != "node outside of its tests" {
		t.Errorf("failed: %v", failed)
	}
	if f := r.failures[0]; !slices.Equal(f.output, []string{"x_test.go:7", "too late"}) {
		t.Errorf("the failure is %+v", f)
	}
	if s := r.suites[0]; s.name != "ladder" || s.specs != 2 || s.setup != 2*time.Second || s.sum != 7*time.Second {
		t.Errorf("the suite is %+v", s)
	}
}

func TestOnlyListedTestsAreTriedTwice(t *testing.T) {
	list := secondTries{{Where: "pkg/agent/ebpf", Test: "TestHeld", Reason: "a hypervisor"}}
	held := testID{Where: "pkg/agent/ebpf", Name: "TestHeld", Package: "p"}
	other := testID{Where: "pkg/agent/ebpf", Name: "TestOther", Package: "p"}
	again, refused := list.allow([]testID{held, other})
	if len(again["p"]) != 1 || again["p"][0] != held || !slices.Equal(refused, []string{"pkg/agent/ebpf TestOther"}) {
		t.Errorf("again %v, refused %v", again, refused)
	}
}

func TestListWithoutAReasonIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.yaml")
	if err := os.WriteFile(path, []byte("- {where: pkg/rt, test: TestA}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSecondTries(path); err == nil || !strings.Contains(err.Error(), "needs where, test and reason") {
		t.Errorf("the error is %v", err)
	}
}

// The table is written when a step fails, with what the other lanes found out; the run fails.
func TestTableOfARunThatFails(t *testing.T) {
	r, out := inEmptyDir(t, nil)
	t.Setenv(timing.Variable, filepath.Join(r.dir, recordFile))
	broken := errors.New("it is broken")
	err := r.do(t.Context(), nil, []lane{
		{name: "one", steps: []plannedStep{{"fails", func(_ context.Context, s *step) error {
			_, _ = s.Write([]byte("a line\nhalf"))
			return broken
		}}}},
		{name: "two", steps: []plannedStep{{"passes", func(context.Context, *step) error {
			_, err := r.readGoTests("race", strings.NewReader(goEvents))
			r.addSecondTries([]testID{{Where: "pkg/rt", Name: "TestB", Package: "github.com/mainspring-rt/mainspring/pkg/rt"}})
			return errors.Join(err, timing.Record(timing.Part{Kind: timing.Program, Step: "race", Name: "pkg/rt", Wall: 3 * time.Second, CPU: time.Second}),
				timing.Record(timing.Part{Kind: timing.ControlPlane, Name: "x", Wall: 4 * time.Second}))
		}}}},
	})
	if !errors.Is(err, broken) {
		t.Errorf("the run ends with %v", err)
	}
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(filepath.Join(outDir, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| fails |", "FAILED", "| control plane | 1 | 4.0 |", "| TestA | pkg/rt | 1.5 |", "| pkg/rt | race | 2.0 | 1.0 | 2.0 |", "* pkg/rt TestB"} {
		if !strings.Contains(string(table), want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	for _, want := range []string{"=== FAILED: pkg/host outside of its tests\nbroken\n", "=== FAILED: pkg/agent TestC\npanic: test timed out\n", "one | a line\n", "one | half\n", "second try: pkg/rt TestB\n", "times: out/test-times.md\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out.String(), "=== FAILED: pkg/rt TestB") {
		t.Errorf("what is tried again counts as failed:\n%s", out)
	}
}

func TestAFirstStepThatFailsEndsTheRun(t *testing.T) {
	r, _ := inEmptyDir(t, nil)
	ran := false
	err := r.do(t.Context(), []plannedStep{{"tools", func(context.Context, *step) error { return errors.New("no compiler") }}},
		[]lane{{name: "unit", steps: []plannedStep{{"race", func(context.Context, *step) error { ran = true; return nil }}}}})
	if err == nil || ran {
		t.Errorf("it ends with %v; tests ran: %t", err, ran)
	}
}

// A program's exit code, and what it took, are those of the test binary.
func TestExecRecordsWhatAProgramTakes(t *testing.T) {
	record := filepath.Join(t.TempDir(), "parts")
	t.Setenv(timing.Variable, record)
	code, err := execProgram([]string{"race", "/bin/sh", "-c", "exit 3"})
	if err != nil || code != 3 {
		t.Errorf("exit code %d, %v", code, err)
	}
	content, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var p timing.Part
	if err := json.Unmarshal(content, &p); err != nil || p.Step != "race" || p.Name != "hack/test" || p.Wall <= 0 {
		t.Errorf("recorded %s (%v)", content, err)
	}
}

func TestMachineIsRead(t *testing.T) {
	got := parseMachine("cpu  100 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4\n")
	if want := (machine{busy: 171 * tick, idle: 450 * tick}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := parseMachine("nothing"); got != (machine{}) {
		t.Errorf("%+v of what is no /proc/stat", got)
	}
}

// A step that prints dots, and no end of a line, is as silent as one that prints nothing.
func TestDotsAreProgressThatIsPrinted(t *testing.T) {
	out := &strings.Builder{}
	r := &results{out: out, began: time.Now().Add(-time.Minute), printed: time.Now().Add(-silentFor)}
	s := &step{results: r, name: "suite", lane: lane{name: "kernel"}, began: r.began}
	r.running = []*step{s}
	if _, err := s.Write([]byte("..")); err != nil || out.Len() > 0 {
		t.Fatalf("%v, %q", err, out)
	}
	r.reportSilence()
	if got := out.String(); !strings.HasPrefix(got, "kernel | ..\n... 1m0s: suite for 60.") {
		t.Errorf("printed %q", got)
	}
	before := out.Len()
	r.reportSilence()
	if out.Len() != before {
		t.Errorf("it is told twice: %q", out)
	}
}

// The end of what was printed is kept, or the begin of what a program was doing that died.
func TestWhatIsKeptOfAFailure(t *testing.T) {
	p := &packageEvents{}
	for i := range 500 {
		p.add("", fmt.Sprintf("line %d\n", i))
	}
	if len(p.output) != keptLines || p.output[keptLines-1] != "line 499" {
		t.Errorf("%d lines, the last is %q", len(p.output), p.output[len(p.output)-1])
	}
	p.add("", "panic: test timed out after 25m0s\n")
	for i := range 1000 {
		p.add("", fmt.Sprintf("goroutine %d\n", i))
	}
	if len(p.output) != keptLines+keptDump || p.output[keptLines] != "panic: test timed out after 25m0s" || p.output[keptLines+1] != "goroutine 0" {
		t.Errorf("%d lines: %q", len(p.output), p.output[keptLines:keptLines+2])
	}
}
