package operator

import (
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/controllers"
)

// resources are the settings of the loop that sees which nodes are short of CPU or memory, and of the sink of migrations.
func (o *MigrationOptions) resources(op *operator.Operator) (controllers.Resources, error) {
	out := controllers.Resources{Pressure: o.Pressure}
	out.Pressure.Checkpointing, out.Pressure.SourceTimeout = o.Checkpointing, o.Usage.Timeout
	var err error
	if out.Usage, err = o.Usage.source(op, o.Influx, o.Pressure.MaxAge()); err != nil {
		return out, err
	}
	if o.Influx.Write != influxOff {
		out.Influx, err = o.Influx.client()
	}
	return out, err
}
