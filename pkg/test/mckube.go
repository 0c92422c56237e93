package test

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

const (
	// period of real-time containers, in microseconds: one percent of it is a millisecond.
	period  = 100_000
	percent = period / 100
)

// McKubeChange changes a McKube that is being built.
type McKubeChange = func(*mcoperatorv1.McKube)

// McKube governs the pod of the same name, at criticality Low, with share percent of a core that
// never become more.
func McKube(name string, share int64, changes ...McKubeChange) *mcoperatorv1.McKube {
	m := &mcoperatorv1.McKube{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec: mcoperatorv1.McKubeSpec{
			Podname:     name,
			Criticality: mcoperatorv1.CriticalityLow,
			RTSettings:  &mcoperatorv1.RTSettings{Period: period, RuntimeLow: share * percent, RuntimeHi: share * percent},
		},
	}
	return build(m, changes)
}

// Critical sets the criticality.
func Critical(c mcoperatorv1.Criticality) McKubeChange {
	return func(m *mcoperatorv1.McKube) { m.Spec.Criticality = c }
}

// GovernsWorkload lets the McKube govern all pods of a workload, in place of one by its name.
func GovernsWorkload(workload string) McKubeChange {
	return func(m *mcoperatorv1.McKube) { m.Spec.Podname, m.Spec.Selector = "", Selector(workload) }
}

// Restarts has pods be moved one after the other: no second one serves before the first goes.
func Restarts() McKubeChange {
	return func(m *mcoperatorv1.McKube) {
		m.Spec.Migration = &mcoperatorv1.Migration{Policy: mcoperatorv1.MigrationRestart}
	}
}

// GovernsPod lets the McKube govern the pod of that name.
func GovernsPod(name string) McKubeChange {
	return func(m *mcoperatorv1.McKube) { m.Spec.Podname = name }
}

// GovernsContainer lets the McKube govern the container of that name.
func GovernsContainer(name string) McKubeChange {
	return func(m *mcoperatorv1.McKube) { m.Spec.Container = name }
}

// MayRiseTo lets the budget become share percent of a core.
func MayRiseTo(share int64) McKubeChange {
	return func(m *mcoperatorv1.McKube) { m.Spec.RTSettings.RuntimeHi = share * percent }
}

// Prefers is the set of preferred cores as a cpuset list.
func Prefers(cores string) McKubeChange {
	return func(m *mcoperatorv1.McKube) { m.Spec.RTSettings.Core = &cores }
}

// Limited admits by test T1k, onto a core that keeps an escalation reserve.
func Limited() McKubeChange {
	return escalation(func(e *mcoperatorv1.Escalation) { e.Admission = mcoperatorv1.AdmissionLimited })
}

// RecoversAfter is how long a node must be calm before a budget raised for pressure is given back,
// and how long a raised budget is kept at least.
func RecoversAfter(delay time.Duration) McKubeChange {
	return escalation(func(e *mcoperatorv1.Escalation) {
		e.RecoveryDelay, e.Dwell = &metav1.Duration{Duration: delay}, &metav1.Duration{Duration: delay}
	})
}

func escalation(change func(*mcoperatorv1.Escalation)) McKubeChange {
	return func(m *mcoperatorv1.McKube) {
		if m.Spec.Escalation == nil {
			m.Spec.Escalation = &mcoperatorv1.Escalation{}
		}
		change(m.Spec.Escalation)
	}
}

// OnNode lets the pods run only on the node.
func OnNode(name string) McKubeChange {
	return func(m *mcoperatorv1.McKube) { m.Spec.Node = name }
}

// In puts the McKube into a namespace.
func In(namespace string) McKubeChange {
	return func(m *mcoperatorv1.McKube) { m.Namespace = namespace }
}
