package rtdra

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// ServerID names the server of a container among all servers of a cluster.
func ServerID(podUID types.UID, container string) string {
	return string(podUID) + "/" + container
}

// ServerOf is the server that m makes of a container. The error names the field that is at fault.
func ServerOf(m *mcv1.McKube, podUID types.UID, container string) (rt.Server, error) {
	s := m.Spec.RTSettings
	if s == nil {
		return rt.Server{}, fmt.Errorf("McKube %s has no rtSettings, so there is no budget to promise", m.Name)
	}
	criticality, err := rt.ParseCriticality(string(m.Spec.Criticality))
	if err != nil {
		return rt.Server{}, fmt.Errorf("McKube %s: %w", m.Name, err)
	}
	server := rt.Server{
		ID: ServerID(podUID, container), Criticality: criticality,
		Period: s.Period, Low: s.RuntimeLow, High: s.RuntimeHi,
		Limited: limited(m), Fit: rt.Fit(s.CoreSelection),
	}
	if s.Deadline != nil {
		server.Deadline = *s.Deadline
	}
	for _, l := range s.Levels {
		server.Levels = append(server.Levels, l.Runtime)
	}
	slices.Sort(server.Levels)
	if s.Core != nil {
		if server.Preferred, err = mcv1.ParseCores(*s.Core); err != nil {
			return rt.Server{}, fmt.Errorf("McKube %s: %w", m.Name, err)
		}
	}
	if err := server.Validate(); err != nil {
		return rt.Server{}, fmt.Errorf("McKube %s: rtSettings.%w", m.Name, err)
	}
	return server, nil
}

// limited tells whether the McKube asks for test T1k.
func limited(m *mcv1.McKube) bool {
	return m.Spec.Escalation != nil && m.Spec.Escalation.Admission == mcv1.AdmissionLimited
}
