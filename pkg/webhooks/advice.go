package webhooks

import (
	"fmt"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// advice warns of settings that are allowed and probably not what was wanted.
func advice(m *mcv1.McKube, server rt.Server, granularity int64) []string {
	var warnings []string
	if need := server.Charge(granularity); need > rt.MaxCapacity {
		warnings = append(warnings, fmt.Sprintf(
			"spec.rtSettings: the budget with %d us of enforcement margin takes %d ppm of a core; no core promises more than %d ppm, so its pods will stay pending",
			granularity, need, rt.MaxCapacity))
	}
	if server.Criticality == rt.Low && server.Low < server.High {
		warnings = append(warnings, fmt.Sprintf(
			"spec.rtSettings.runtime_hi: %d us is given only where the core has room beside what all others may be raised to, because the criticality is Low; runtime_low, %d us, is promised",
			server.High, server.Low))
	}
	return append(warnings, taskAdvice(m.Spec.RTSettings, server)...)
}

// taskAdvice tests the tasks inside the container against what the server supplies (Shin and Lee,
// RTSS 2003).
func taskAdvice(s *mcv1.RTSettings, server rt.Server) []string {
	if len(s.Tasks) == 0 {
		return nil
	}
	var warnings []string
	found := rt.AdvisePeriod(server, tasksOf(s))
	if !found.Fits {
		warnings = append(warnings, tooLittle(s, server, found))
	}
	if found.MaxPeriod > 0 && server.Period > found.MaxPeriod {
		warnings = append(warnings, fmt.Sprintf(
			"spec.rtSettings.period: %d us is more than half the shortest period of a task, %d us; the container may be without CPU for %d us at a time",
			server.Period, 2*found.MaxPeriod, found.Blackout))
	}
	return warnings
}

// tooLittle says which budget would be enough, if one is.
func tooLittle(s *mcv1.RTSettings, server rt.Server, found rt.PeriodAdvice) string {
	remedy := "no budget up to runtime_hi is enough: raise the budgets, or shorten spec.rtSettings.period"
	switch {
	case found.FitsEDF:
		remedy = "it is enough if the container schedules its tasks by earliest deadline first"
	case found.FitsRaised:
		remedy = fmt.Sprintf("only %d us, after an escalation, is enough", server.Guaranteed())
	}
	field := "spec.rtSettings.tasks"
	if found.Late >= 0 && found.Late < len(s.Tasks) {
		task := s.Tasks[found.Late]
		field = fmt.Sprintf("%s[%d] (wcet %d us every %d us)", field, found.Late, task.WCET, task.Period)
	}
	return fmt.Sprintf("%s may miss its deadline with runtime_low, %d us in every %d us; %s", field, server.Low, server.Period, remedy)
}

func tasksOf(s *mcv1.RTSettings) []rt.Task {
	tasks := make([]rt.Task, len(s.Tasks))
	for i, t := range s.Tasks {
		tasks[i] = rt.Task{Period: t.Period, WCET: t.WCET}
		if t.Deadline != nil {
			tasks[i].Deadline = *t.Deadline
		}
	}
	return tasks
}
