package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// Packages by what they need.
var (
	// kernelPackages schedule real-time tasks, make RT groups, attach to the scheduler, or change the kernel's settings as a kubelet does. They take
	// turns for the machine (pkg/test/privileged), so one lane tests them one after the other, with the suite that has a real node.
	kernelPackages = []string{
		"./pkg/agent/actuator", "./pkg/agent/ebpf", "./pkg/agent/fastpath/node", "./pkg/agent/doctor", "./pkg/agent/standalone", "./pkg/agent", "./pkg/localnode",
	}
	// mostlySequential have hundreds of scenarios against an API server that run in one goroutine each, or compile programs to look at them. The
	// race detector sees the tests of raceTests; the rest runs without it in two thirds of the time.
	mostlySequential = []string{
		"./pkg/controllers/migration", "./pkg/controllers/ladder", "./pkg/controllers/rtruntime", "./pkg/controllers/provisioning", "./pkg/controllers/disruption", "./pkg/orchestration", "./test/charts",
	}
	raceTests = map[string][]string{
		"./pkg/controllers/rtruntime":  {"TestTwoControllersNeverAdmitTwice", "TestOfTwoDecisionsOnOneVersionOneIsWritten", "TestAnAgentLivesByItsLease", "TestReportsAtOnce"},
		"./pkg/controllers/disruption": {"TestASlowSearchIsInterrupted", "TestConsolidationsOwnWaitIsInterrupted", "TestConsolidationEndsWhereTheRoomIsGone", "TestTheTriggerEndsSearchesAsTimeoutsDo", "TestSearchesEndWithTheProcess", "TestTheTriggerWakesTheLoop"},
		"./pkg/orchestration":          {"TestRequestsAreStoredSideBySide", "TestTwoProcessesAtOnce", "TestTwoAtTheSameInstantKeepEachLimit"},
		"./pkg/controllers/migration":  {"TestDecisionsAreWrittenSideBySide", "TestADecisionIsMadeOnce", "TestOnAControlPlane", "TestAnEvictionThatWaitsForAnother"},
	}
	// longest take more than half a minute. They begin first, or one of them is alone at the end.
	longest = []string{
		"./pkg/controllers/migration", "./pkg/controllers/ladder", "./pkg/controllers/rtruntime", "./pkg/orchestration",
		"./pkg/controllers/provisioning", "./pkg/controllers/disruption", "./test/charts",
	}
)

// suiteLanes are the suites that run one after the other, so that two of them fill each other's waits, and how many processes share the specs of each.
var suiteLanes = []struct {
	suites    []string
	processes int
}{{[]string{"lifecycle", "inventory"}, 3}, {[]string{"ladder", "realtime", "migration"}, 4}}

const (
	nodeSuite = "node"
	// aloneProcesses is how many processes share the specs of a suite that runs alone. Each has a control plane of its own, which takes a twentieth of a
	// core while it waits: where lanes run beside each other two cores are busy with fewer.
	aloneProcesses = 6
	// testedAtOnce is how many packages are tested at once. Tests wait for API servers and for conditions, so it is more than is
	// computed at once.
	testedAtOnce = 2
	// testsAtOnce is how many parallel tests of a package run at once, for the same reason.
	testsAtOnce = 6
)

// lane is a row of steps, one after the other. Lanes run beside each other.
type lane struct {
	name  string
	steps []plannedStep
	// scheduling: its tests look at what the kernel's scheduler does, and so run by its usual policy. All others are batches.
	scheduling bool
}

type plannedStep struct {
	name string
	do   func(context.Context, *step) error
}

// plan returns what is to be done first, and the lanes. All that is compiled comes first: on a machine that has never built it that takes longer
// than the tests, and a test that shares two cores with four compilers waits in vain for what should take a moment.
func (o options) plan() (first []plannedStep, lanes []lane, err error) {
	first = append(first, plannedStep{"tools", o.buildTools})
	switch o.what {
	case "all":
		lanes = slices.Concat(o.unitLanes(), o.suiteLanes())
	case "unit":
		lanes = o.unitLanes()
	case "e2e":
		lanes = o.suiteLanes()
	default:
		return nil, nil, fmt.Errorf("%q is nothing to test: want all, unit or e2e", o.what)
	}
	first = append(first, plannedStep{"programs", buildPrograms})
	if o.what != "e2e" {
		first = append(first, plannedStep{"packages", compilePackages})
	}
	return first, mergeLanes(lanes), nil
}

// mergeLanes joins lanes of the same name.
func mergeLanes(lanes []lane) []lane {
	var merged []lane
	for _, l := range lanes {
		if i := slices.IndexFunc(merged, func(m lane) bool { return m.name == l.name }); i >= 0 {
			merged[i].steps = append(merged[i].steps, l.steps...)
		} else {
			merged = append(merged, l)
		}
	}
	return merged
}

func (o options) unitLanes() []lane {
	unit := []plannedStep{
		{"unit", func(ctx context.Context, s *step) error { return testPackages(ctx, s, "unit", false) }},
		{"race", func(ctx context.Context, s *step) error { return testPackages(ctx, s, "race", true) }},
		goTests{
			name: "race of single tests", packages: slices.Sorted(maps.Keys(raceTests)), race: true, args: []string{"-run=" + racedAlone()}, parallel: 1,
		}.planned(),
	}
	return []lane{
		{name: "kernel", steps: []plannedStep{
			goTests{name: "kernel", packages: kernelPackages, race: true, parallel: 1, timeout: o.kernelTimeout()}.planned(),
			// The race detector's code lets Go's scheduler in where the program does not.
			goTests{name: "kernel without race", packages: []string{"./pkg/agent/ebpf"}, args: []string{"-run=TestHeldReader"}, parallel: 1}.planned(),
		}, scheduling: true},
		{name: "unit", steps: unit},
	}
}

// kernelTimeout is more than twice what the longest of the kernel's packages took on the slowest machine seen: pkg/agent/actuator, 623 s.
func (o options) kernelTimeout() time.Duration {
	if o.exhaustive {
		return 0
	}
	return 25 * time.Minute
}

// laneName names the lane of suites.
func laneName(suites []string) string { return strings.Join(suites, "+") }

// racedAlone matches the names of raceTests.
func racedAlone() string {
	return "^(" + strings.Join(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(raceTests))...))), "|") + ")$"
}

// testPackages tests the packages outside of the kernel's lane that have something to race, or those that have not.
func testPackages(ctx context.Context, s *step, name string, race bool) error {
	sequential, concurrent, err := splitPackages(ctx)
	if err != nil {
		return err
	}
	g := goTests{name: name, packages: sequential, parallel: testedAtOnce, args: []string{"-skip=" + racedAlone()}} // which pass by themselves
	if race {
		g = goTests{name: name, packages: concurrent, race: true, parallel: testedAtOnce}
	}
	return g.run(ctx, s)
}

func (o options) suiteLanes() []lane {
	if len(o.suites) > 0 {
		s := suites{names: o.suites, processes: aloneProcesses, args: o.ginkgoArgs()}
		if o.focus != "" {
			s.processes = 1 // each starts a control plane, which takes longer than most scenarios
		}
		return []lane{{name: "suites", steps: []plannedStep{s.planned("suites")}, scheduling: slices.Contains(o.suites, nodeSuite)}}
	}
	lanes := []lane{{name: "kernel", steps: []plannedStep{suites{names: []string{nodeSuite}, processes: 1, args: o.ginkgoArgs()}.planned(nodeSuite)}, scheduling: true}}
	for _, l := range suiteLanes {
		name := laneName(l.suites)
		lanes = append(lanes, lane{name: name, steps: []plannedStep{suites{names: l.suites, processes: l.processes, args: o.ginkgoArgs()}.planned(name)}})
	}
	return lanes
}

func (o options) ginkgoArgs() []string {
	if o.focus == "" {
		return o.ginkgo
	}
	args := append(slices.Clone(o.ginkgo), "--focus="+o.focus)
	if len(o.suites) == 1 {
		args = append(args, "--fail-on-empty") // a focus that matches no spec is a mistake
	}
	return args
}

// buildTools builds what the lanes need, and the tools of the real node only for those that have one.
func (o options) buildTools(ctx context.Context, s *step) error {
	wanted := []toolchain.Tool{toolchain.Etcd, toolchain.KubeAPIServer, toolchain.KubeControllerManager, toolchain.KubeScheduler, toolchain.Kubectl, toolchain.Kwok}
	if o.what != "e2e" {
		wanted = append(wanted, toolchain.Gotestsum)
	}
	if o.what != "e2e" || !slices.Equal(o.suites, []string{"lifecycle"}) {
		wanted = append(wanted, toolchain.Helm)
	}
	if o.what == "all" || slices.Contains(o.suites, nodeSuite) || o.what == "e2e" && len(o.suites) == 0 {
		wanted = append(wanted, programs.NodeTools()...)
	}
	_, err := toolchain.Ensure(ctx, s, wanted...)
	return err
}

// buildPrograms builds the programs that tests run, once for all of them.
func buildPrograms(ctx context.Context, s *step) error {
	dir, err := filepath.Abs(filepath.Join(outDir, "test-programs"))
	if err != nil {
		return fmt.Errorf("resolving %s: %w", outDir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the programs: %w", err)
	}
	if err := programs.Build(ctx, dir, programs.Shipped()...); err != nil {
		return err
	}
	s.results.programs = dir
	return nil
}

// compilePackages compiles the packages and their tests as the lanes will, and links nothing.
func compilePackages(ctx context.Context, s *step) error {
	sequential, concurrent, err := splitPackages(ctx)
	if err != nil {
		return err
	}
	list := []string{"list", "-export", "-test", "-f="}
	if err := s.command(ctx, nil, "go", slices.Concat(list, sequential)...); err != nil {
		return err
	}
	raced := slices.Concat(concurrent, kernelPackages, slices.Sorted(maps.Keys(raceTests)))
	return s.command(ctx, []string{raceEnv}, "go", slices.Concat(list, []string{"-race"}, raced)...)
}

// splitPackages splits the packages outside of the kernel's lane into those without concurrency of ours, in which the race detector finds
// nothing, and the others, the longest first. The race detector makes arithmetic fifteen times as slow, and a call of an API server half as slow again.
func splitPackages(ctx context.Context) (sequential, concurrent []string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.ImportPath}} {{.Dir}}", "./...").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("listing the packages: %w", err)
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pkg = "./" + relative(pkg); !strings.HasPrefix(pkg, "./test/suites/") {
			dirs[pkg] = dir
		}
	}
	for _, pkg := range slices.Concat(longest, mostlySequential, kernelPackages) {
		if dirs[pkg] == "" { // a package that is listed twice, or by another name, would be missed in silence
			return nil, nil, fmt.Errorf("hack/test lists %s; there is no such package", pkg)
		}
	}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(dirs)), func(pkg string) bool {
		return slices.Contains(longest, pkg) || slices.Contains(kernelPackages, pkg)
	})
	for _, pkg := range slices.Concat(longest, others) {
		races, err := hasConcurrency(dirs[pkg])
		switch {
		case err != nil:
			return nil, nil, err
		case races && !slices.Contains(mostlySequential, pkg):
			concurrent = append(concurrent, pkg)
		default:
			sequential = append(sequential, pkg)
		}
	}
	return sequential, concurrent, nil
}

// concurrency is what code or tests say that start goroutines. One that locks alone is raced by the tests of those that call it.
var concurrency = regexp.MustCompile(`(?m)^\s*go\s+\w|\.Go\(`)

// hasConcurrency reports whether a package, or its tests, start goroutines.
func hasConcurrency(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false, fmt.Errorf("listing the files of %s: %w", dir, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("looking for goroutines: %w", err)
		}
		if concurrency.Match(content) {
			return true, nil
		}
	}
	return false, nil
}
