package controllers

import (
	"github.com/awslabs/operatorpkg/controller"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migrationpolicy"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	"github.com/mainspring-rt/mainspring/pkg/policy"
	rtstate "github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// Migrations are the settings of migrations of pods.
type Migrations struct {
	// Checkpointing: pods may be moved with their state.
	Checkpointing bool
	// Threshold is the share of a node's CPU or memory above which it is under pressure.
	Threshold float64
	// Engine is asked where a MigrationPolicy has none of its own; nil: none is.
	Engine *v1alpha1.PolicyEngine
	// SecretNamespace has the Secrets with the tokens of policy engines.
	SecretNamespace string
}

// migrations are the loops that move pods to other nodes. The queue's actions of that kind are done here, too.
func migrations(op *operator.Operator, cluster *state.Cluster, store *rtstate.Store, queue *orchestration.Queue, latest *usage.Latest, o Options) []controller.Controller {
	simulator := &placement.Simulator{Client: op.GetClient(), Cluster: cluster, Recorder: op.EventRecorder, Clock: op.Clock}
	judge := policy.NewJudge(policy.Options{
		Client: op.GetClient(), Secrets: op.GetAPIReader(), Namespace: o.Migrations.SecretNamespace, Clock: op.Clock, Default: o.Migrations.Engine,
	})
	d := migration.Dependencies{
		Clock: op.Clock, Client: op.GetClient(), API: op.GetAPIReader(), Store: store, Recorder: recorder{op.EventRecorder},
		Running:   func() []*v1alpha1.RTAction { return queue.Running(rules.Migrate) },
		Placement: simulator, Judge: judge,
	}
	queue.Handle(rules.Migrate, migration.New(d))
	return []controller.Controller{
		migration.NewReconciler(migration.ReconcilerDependencies{
			Dependencies: d, Actions: queue, Rooms: simulator.Rooms, Load: latest.Load,
			Checkpointing: o.Migrations.Checkpointing, Threshold: o.Migrations.Threshold,
		}),
		&migration.Gates{Client: op.GetClient(), API: op.GetAPIReader()},
		&migration.Leftovers{Dependencies: d},
		&migration.Strays{Dependencies: d},
		&migrationpolicy.Controller{Client: op.GetClient(), Tokens: judge},
	}
}
