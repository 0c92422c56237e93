package environment

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
	"github.com/mainspring-rt/mainspring/pkg/test/timing"
)

// syncTimeout bounds how long the record may take to catch up with the API server.
const syncTimeout = 30 * time.Second

// DefaultFlags are those of the controller when a scenario asks for nothing else: short batches,
// every gate that the scenarios need, and no leader election, whose lease would outlive a kill.
func DefaultFlags() []string {
	return []string{
		"--batch-idle-duration=200ms",
		"--batch-max-duration=1s",
		"--disable-leader-election=true",
		"--feature-gates=NodeRepair=true,NodeOverlay=true,StaticCapacity=true,ReservedCapacity=true",
		"--log-level=debug",
		"--rt-calibration-timeout=0s", // there are no agents
		"--simulated-repair-toleration=5s",
	}
}

// BeforeEach gives a spec a clean cluster with the default node class, a running controller with
// the default flags, and a record that begins now.
func (env *Environment) BeforeEach() {
	GinkgoHelper()
	env.recorder, env.outage, env.dead, env.forbids = nil, false, nil, ""
	env.ExpectController(env.defaults...)
	env.logStart, env.agentsStart = env.Controller.logSize(), env.Agents.logSize()
	env.expectStanding()
	if env.realtime() {
		env.audit.begin()
	}
	if env.realtime() && env.Node == nil {
		env.ExpectAgents()
	}
	var err error
	env.recorder, err = history.Start(env, env.direct)
	Expect(err).NotTo(HaveOccurred())
	env.answers.follow(env.recorder)
}

// AfterEach checks what must hold after every spec, and cleans up. When the spec has failed it
// attaches what the controller logged and what the cluster looked like.
func (env *Environment) AfterEach() {
	GinkgoHelper()
	if env.recorder == nil { // the spec has not begun; what kept it from that has failed it
		return
	}
	defer env.answers.follow(nil)
	defer env.recorder.Stop()
	if CurrentSpecReport().Failed() {
		env.report()
	} else {
		// Whatever fails from here on is reported as well.
		DeferCleanup(func() {
			if CurrentSpecReport().Failed() {
				env.report()
			}
		})
		env.ExpectInvariants()
	}
	env.ExpectClean()
}

// ExpectController makes sure that the controller runs with exactly these flags.
func (env *Environment) ExpectController(flags ...string) {
	GinkgoHelper()
	if env.Controller.Running() && slices.Equal(env.Controller.Flags(), flags) {
		return
	}
	Expect(env.Controller.Crash()).To(Succeed())
	Expect(env.Controller.Stop()).To(Succeed())
	Expect(env.Controller.Start(env, flags...)).To(Succeed())
}

// ExpectControllerWith restarts the controller with the default flags and more; a flag given later
// replaces one of the same name.
func (env *Environment) ExpectControllerWith(flags ...string) {
	GinkgoHelper()
	env.ExpectController(chart.Override(env.defaults, flags...)...)
}

// History returns everything that was written since the spec began, complete up to this call.
func (env *Environment) History() history.History {
	GinkgoHelper()
	h, gaps := env.HistoryWithGaps()
	Expect(gaps).To(BeEmpty(), "the record has gaps, so it proves nothing")
	return h
}

// Recorded returns what is on record, a moment behind the API server. What is waited for is looked for here: History lists every kind anew at each
// call, and a spec that waits calls five times a second.
func (env *Environment) Recorded() history.History { return env.recorder.History() }

// HistoryWithGaps is History for scenarios that take the API server away: a watch that is lost with
// it cannot be resumed, and what was written just before may be missing. It says where.
func (env *Environment) HistoryWithGaps() (history.History, []string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(env, syncTimeout)
	defer cancel()
	Expect(env.recorder.Sync(ctx)).To(Succeed())
	return env.recorder.History(), env.recorder.Gaps()
}

// Now returns the present position in the history, for History().Since.
func (env *Environment) Now() uint64 {
	GinkgoHelper()
	versions := env.History().Versions()
	if len(versions) == 0 {
		return 0
	}
	return versions[len(versions)-1].Revision
}

func (env *Environment) report() {
	env.failed = true
	AddReportEntry(timing.Summary, env.summarize(), ReportEntryVisibilityFailureOrVerbose)
	AddReportEntry("cluster", env.describe(), ReportEntryVisibilityFailureOrVerbose)
	AddReportEntry("controller log", env.Controller.logSince(env.logStart), ReportEntryVisibilityNever)
	AddReportEntry("controller log, its end", env.Controller.tail(15), ReportEntryVisibilityFailureOrVerbose)
	AddReportEntry("agents' log", env.Agents.logSince(env.agentsStart), ReportEntryVisibilityNever)
	if env.NodeAgent != nil {
		AddReportEntry("node agent's logs, their ends", env.NodeAgent.Tails(), ReportEntryVisibilityFailureOrVerbose)
	}
	AddReportEntry("logs", fmt.Sprintf("%s (from byte %d)", env.Controller.logPath, env.logStart), ReportEntryVisibilityFailureOrVerbose)
}
