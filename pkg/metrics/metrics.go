// Package metrics are the measurements of real-time work that the controller serves under mainspring_.
// Label sets are closed or belong to an object that exists: series of a node or container end with it.
package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

const namespace = "mainspring"

// Values of the label verdict of mainspring_admission_total.
const (
	VerdictAdmitted = "admitted"
	VerdictRefused  = "refused"
)

// TestNone is the value of the label test where no core could be asked.
const TestNone = "none"

// Values of the label action of mainspring_preemptions_total.
const (
	// ActionMove is a container moved to another core of its node for a more critical one.
	ActionMove = "move"
	// ActionEvict is a pod evicted for a more critical one.
	ActionEvict = "evict"
)

// Values of the label result of mainspring_escalations_total.
const (
	// ResultRaised is a budget that the agent reports above the low one.
	ResultRaised = "raised"
	// ResultRefused is a raise that the controller's plan has no room for, or, of an agent, the kernel's refusal.
	ResultRefused = "refused"
	// ResultPartial is a raise by an agent to less than it asked for; ResultDenied one that found no room.
	ResultPartial = "partial"
	ResultDenied  = "denied"
)

// KindPreemption is the value of the label kind for making room for pending pods.
const KindPreemption = "preemption"

var (
	// Admissions counts containers that were given a core, or refused one, by the test that decided.
	Admissions = counter("admission_total", "Containers that were given a core or refused one, by the admission test that decided.", "verdict", "test")
	// ContainersRefused is how many containers wait for a core that they have been refused.
	ContainersRefused = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "containers_refused", Help: "Containers that wait, having been refused a core, by the admission test that decided; none where no core could be asked.",
	}, []string{"test"})
	// Preemptions counts containers and pods that gave way to more critical ones.
	Preemptions = counter("preemptions_total", "Containers moved and pods evicted for more critical ones.", "action")
	// Escalations counts raises of budgets.
	Escalations = counter("escalations_total", "Raises of budgets above the low one, as reported by agents, and those refused.", "result")
	// Recoveries counts budgets that are the low one again.
	Recoveries = counter("recoveries_total", "Budgets that were raised and are the low one again, as reported by agents.")
	// QueueDepth is how much waits to be done.
	QueueDepth = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "queue_depth", Help: "Actions under way: pods for which room is being made.",
	}, []string{"kind"})
	// QueueWait is how long an action took from its decision to its end.
	QueueWait = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "queue_wait_seconds", Help: "Time from the decision on an action to its end.",
		Buckets: []float64{0.5, 1, 2, 5, 10, 20, 30, 60},
	}, []string{"kind"})
	// Actions counts actions of the orchestration queue that are over.
	Actions = counter("actions_total", "Actions of the orchestration queue that are over, by what became of them.", "kind", "outcome")
	// ActionsUnderWay is how many actions wait, run or are being undone.
	ActionsUnderWay = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "actions", Help: "Actions of the orchestration queue that are not over.",
	}, []string{"kind", "phase"})
	// ActionsWaiting is how many actions wait for what.
	ActionsWaiting = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "actions_waiting", Help: "Actions of the orchestration queue that wait, by what they wait for.",
	}, []string{"reason"})
	// ActionsUnwritable is how many actions have a record that the API server does not let the controller write.
	ActionsUnwritable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "actions_unwritable", Help: "Actions of the orchestration queue whose record the API server refuses to store: they stay as they are, and keep what they use.",
	}, nil)
	// ActionWait is how long actions waited before they began.
	ActionWait = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "action_wait_seconds", Help: "Time from the submission of an action to its beginning.",
		Buckets: []float64{0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800},
	}, []string{"kind"})
	// DisruptionRefusals counts commands of the standard disruption methods that would have harmed real-time work.
	DisruptionRefusals = counter("disruption_refusals_total", "Nodes that consolidation, drift or repair would have closed and that were left alone for their real-time work, by why.", "reason")
	// DisruptionHeld is how many nodes could be closed, with their replacements ready, and are kept.
	DisruptionHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "disruption_held_nodes", Help: "Nodes that are tainted and were to be deleted by now, and are not for the sake of their pods, by why.",
	}, []string{"reason"})
	// SearchesPreempted counts searches of the standard methods that were ended for a node under real-time pressure.
	SearchesPreempted = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "disruption_searches_preempted_total", Help: "Searches for nodes to close that were ended because a node under real-time pressure is to be replaced.",
	})
	// Charged is what admission adds to every budget.
	Charged = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "budget_granularity_charged_seconds",
		Help: "What admission charges to every budget beyond itself. Nodes that enforce budgets more coarsely take no claims.",
	})
	// Nodes holds the series of nodes and their containers.
	Nodes = newNodeSet()
)

// Register adds every metric of the package to a registry, once, before the controllers start.
func Register(registry prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{Admissions, ContainersRefused, Preemptions, Escalations, Recoveries, QueueDepth, QueueWait, Actions, ActionsUnderWay, ActionsWaiting, ActionsUnwritable, ActionWait, DisruptionRefusals, DisruptionHeld, SearchesPreempted, RepackSearches, RepackSavings, Migrations, MigrationDowntime, MigrationPhases, Charged, Nodes,
		PressureNodes, PressureUnanswered, PressureEpisodes, PressureAnswers, PressureReturns, PressureSeconds,
		UsageReads, UsageNodes, NodeUsage, ResourcePressed, ResourceDecisions, SinkPoints, SinkFailures, SinkBuffered,
		PolicyDecisions,
		WorkloadOptimizations, WorkloadScore, WorkloadCost, WorkloadPower,
		FleetCost, FleetLowestCost, FleetPackedCost, CostPolicyForecast, PowerPolicyForecast,
		CostPolicyRate, CostPolicySpend, CostPolicyMonth, CostPolicyBudget, CostPolicyViolations,
		PowerPolicyPower, PowerPolicyEnergy, PowerPolicyMonth, PowerPolicyUtilization, PowerPolicyViolations,
		PowerOperations, MachineFailures, MachineJoin, Machines} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	zero()
	return nil
}

// zero makes every closed series exist, so that a rate over it is 0 and not absent.
func zero() {
	zeroInventory()
	for _, test := range []string{rt.TestT1, rt.TestT1k, rt.TestEDFVD, rt.TestAMC, TestNone} {
		ContainersRefused.WithLabelValues(test)
		for _, verdict := range []string{VerdictAdmitted, VerdictRefused} {
			Admissions.WithLabelValues(verdict, test)
		}
	}
	for _, action := range []string{ActionMove, ActionEvict} {
		Preemptions.WithLabelValues(action)
	}
	for _, result := range []string{ResultRaised, ResultRefused} {
		Escalations.WithLabelValues(result)
	}
	Recoveries.WithLabelValues()
	QueueDepth.WithLabelValues(KindPreemption)
	QueueWait.WithLabelValues(KindPreemption)
	for _, outcome := range []string{RepackFound, RepackNothing, RepackOutdated, RepackTimeout} {
		RepackSearches.WithLabelValues(outcome)
	}
	zeroActions()
	zeroMigrations()
	zeroPressure()
	zeroUsage()
	zeroPolicy()
}

// zeroActions makes the series of the orchestration queue exist.
func zeroActions() {
	for _, kind := range rules.Kinds {
		for _, phase := range rules.Phases {
			if phase.Over() {
				Actions.WithLabelValues(string(kind), string(phase))
			} else {
				ActionsUnderWay.WithLabelValues(string(kind), string(phase))
			}
		}
		ActionWait.WithLabelValues(string(kind))
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}
