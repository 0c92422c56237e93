package operator

import (
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers"
)

// migrations returns the settings of those that move pods. gating: the controller serves the webhooks.
func (o *MigrationOptions) migrations(secretNamespace string, gating bool) controllers.Migrations {
	out := controllers.Migrations{Namespaces: o.Pressure.Namespaces, Checkpointing: o.Checkpointing, Gating: gating, Threshold: float64(o.Pressure.ThresholdPercent) / 100, SecretNamespace: secretNamespace}
	if o.PolicyEngineURL != "" {
		out.Engine = &v1alpha1.PolicyEngine{URL: o.PolicyEngineURL}
	}
	return out
}
