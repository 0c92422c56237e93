package policy

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// count books a decision by whose engine was asked and what came of it.
func count(asked string, d v1alpha1.MigrationDecision) {
	outcome := map[string]string{
		EngineAllow: metrics.PolicyAllow, EngineDeny: metrics.PolicyDeny, EngineErrorOpen: metrics.PolicyErrorOpen,
		EngineErrorClosed: metrics.PolicyErrorClosed, EngineTimeout: metrics.PolicyTimeout, EngineCached: metrics.PolicyCached,
	}[d.Engine]
	switch {
	case outcome != "":
	case d.Allowed:
		outcome = metrics.PolicyAllow
	default:
		outcome = metrics.PolicyDeny
	}
	metrics.PolicyDecisions.WithLabelValues(asked, outcome).Inc()
}

func same(a, b v1alpha1.PolicyEngine) bool { return equality.Semantic.DeepEqual(a, b) }

// cut keeps a reason to what its field takes.
func cut(text string) string {
	if len(text) <= mostReason {
		return text
	}
	return strings.ToValidUTF8(text[:mostReason], "")
}
