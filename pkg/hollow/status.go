package hollow

import (
	"fmt"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// Version is what hollow agents report as status.agentVersion.
const Version = "hollow"

// Reasons of the conditions that hollow agents write.
const (
	reasonApplied   = "Applied"
	reasonRefused   = "SpecRefused"
	reasonSimulated = "Simulated"
	reasonSteady    = "Steady"
	reasonDisturbed = "BudgetsChanged"
)

// Status is what the agent would report now, but for the time of its heartbeat.
func (m *Machine) Status() v1alpha1.RTNodeStatus {
	status := v1alpha1.RTNodeStatus{
		ObservedGeneration: m.generation, AgentVersion: Version, Backend: catalogue.Backend, BudgetGranularityUs: m.granularity,
		Pressure: v1alpha1.RTPressure{CPUPercent: m.cpuPercent, BusySince: m.busySince},
	}
	for _, c := range m.cores {
		status.Cores = append(status.Cores, v1alpha1.RTCoreStatus{
			ID: int32(c.ID), NUMA: int32(c.NUMA), Sibling: int32(c.Sibling), CapacityPpm: int64(c.Capacity),
			ReservedPpm: int64(m.promised(int32(c.ID))), EscalationReservePpm: int64(c.EscalationReserve),
		})
	}
	refused := 0
	for _, k := range slices.SortedFunc(maps.Keys(m.servers), Key.compare) {
		s := m.servers[k]
		if s.refusal != "" {
			refused++
		}
		status.Servers = append(status.Servers, s.status(k))
	}
	m.setConditions(refused, len(m.servers))
	status.Conditions = slices.Clone(m.conditions)
	return status
}

// status is the server as read back.
func (s *server) status(k Key) v1alpha1.RTServerStatus {
	out := v1alpha1.RTServerStatus{
		PodUID: k.Pod, Container: k.Container, Level: v1alpha1.LevelLow,
		Overruns: s.overruns, Misses: s.misses, Drift: s.drift, Error: s.refusal,
	}
	if s.budget > 0 {
		out.BudgetUs, out.PeriodUs, out.Cores, out.Level = s.budget, s.spec.PeriodUs, []int32{s.core}, s.spec.LevelAt(s.level)
	}
	if !s.lastOverrun.IsZero() {
		at := metav1.NewMicroTime(s.lastOverrun)
		out.LastOverrunTime = &at
	}
	return out
}

func (m *Machine) setConditions(refused, all int) {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reasonApplied, Message: "The spec is applied"}
	if refused > 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, reasonRefused
		ready.Message = fmt.Sprintf("%d of %d servers could not be applied; status.servers[].error says why", refused, all)
	}
	drifted := metav1.Condition{Type: v1alpha1.ConditionDrifted, Status: metav1.ConditionFalse, Reason: reasonSteady, Message: "What was applied is in force"}
	if m.drifting() {
		drifted.Status, drifted.Reason, drifted.Message = metav1.ConditionTrue, reasonDisturbed, "Something else changed budgets; they were set again"
	}
	realtime := metav1.Condition{Type: v1alpha1.ConditionAgentRealtime, Status: metav1.ConditionTrue, Reason: reasonSimulated, Message: "Simulated agents are never late"}
	for _, c := range []metav1.Condition{ready, realtime, drifted} {
		c.ObservedGeneration = m.generation
		c.LastTransitionTime = metav1.NewTime(m.now) // kept where the status does not change
		meta.SetStatusCondition(&m.conditions, c)
	}
}

// Devices are the node's cores as its agent publishes them now.
func (m *Machine) Devices() []resourcev1.Device { return catalogue.CoreDevices(m.cores) }
