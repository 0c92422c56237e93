package operator

import (
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers"
)

// migrations are the settings of those that move pods.
func (o *MigrationOptions) migrations(secretNamespace string) controllers.Migrations {
	out := controllers.Migrations{Checkpointing: o.Checkpointing, Threshold: float64(o.Pressure.ThresholdPercent) / 100, SecretNamespace: secretNamespace}
	if o.PolicyEngineURL != "" {
		out.Engine = &v1alpha1.PolicyEngine{URL: o.PolicyEngineURL}
	}
	return out
}
