package operator

import (
	"fmt"
	"time"

	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
)

// RTOptions are the settings of real-time admission.
type RTOptions struct {
	// BudgetGranularity is added to every budget when its bandwidth is charged: how far a container may
	// run past its budget before it is throttled. Nodes that throttle later take no claims.
	BudgetGranularity time.Duration
	// PreemptionDelay is how long a pod must be unschedulable before less critical pods are evicted for it.
	PreemptionDelay time.Duration
	// AgentTimeout is how long a node's agent may be silent before its node is no longer believed.
	AgentTimeout time.Duration
	// CalibrationTimeout is how long a new node may wait for its agent to measure how exactly it enforces budgets; 0:
	// nodes do not wait.
	CalibrationTimeout time.Duration
}

func (o *RTOptions) addFlags(fs *options.FlagSet) {
	fs.DurationVar(&o.BudgetGranularity, "rt-budget-granularity", 100*time.Microsecond, "Time that is added to every real-time budget when its bandwidth is charged, in whole microseconds: how far a container may run past its budget. Nodes with a coarser granularity take no real-time claims")
	fs.DurationVar(&o.PreemptionDelay, "rt-preemption-delay", 5*time.Second, "How long a real-time pod must be unschedulable, with no node on its way, before less critical pods are evicted for it")
	fs.DurationVar(&o.AgentTimeout, "rt-agent-timeout", 10*time.Second, "How long a node's agent may be silent before its status is no longer believed")
	fs.DurationVar(&o.CalibrationTimeout, "rt-calibration-timeout", 2*time.Minute, "How long a new node of a machine with real-time cores is kept from pods until its agent has measured how exactly it enforces budgets. 0s: not at all")
}

func (o *RTOptions) validate() error {
	if o.BudgetGranularity < 0 || o.BudgetGranularity > 100*time.Millisecond || o.BudgetGranularity%time.Microsecond != 0 {
		return fmt.Errorf("--rt-budget-granularity is %s; it must be whole microseconds from 0s to 100ms", o.BudgetGranularity)
	}
	if o.PreemptionDelay < 0 || o.PreemptionDelay > time.Hour {
		return fmt.Errorf("--rt-preemption-delay is %s; it must be from 0s to 1h", o.PreemptionDelay)
	}
	if o.AgentTimeout < time.Second || o.AgentTimeout > time.Hour {
		return fmt.Errorf("--rt-agent-timeout is %s; it must be from 1s to 1h", o.AgentTimeout)
	}
	if o.CalibrationTimeout < 0 || o.CalibrationTimeout > 10*time.Minute {
		return fmt.Errorf("--rt-calibration-timeout is %s; it must be from 0s to 10m: Karpenter gives a node up that is not registered after 15m", o.CalibrationTimeout)
	}
	return nil
}

func (o *RTOptions) runtime() rtruntime.Options {
	return rtruntime.Options{
		Granularity:     o.BudgetGranularity.Microseconds(),
		PreemptionDelay: o.PreemptionDelay,
		AgentTimeout:    o.AgentTimeout,
	}
}
