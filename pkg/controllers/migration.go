package controllers

import (
	"context"

	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
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
	// Namespaces are those whose pods are moved; nil: all are.
	Namespaces sets.Set[string]
	// Checkpointing: pods may be moved with their state.
	Checkpointing bool
	// Gating: the controller serves webhooks.
	Gating bool
	// Threshold is the share of a node's CPU or memory above which it is under pressure.
	Threshold float64
	// Engine is asked where a MigrationPolicy has none of its own; nil: none is.
	Engine *v1alpha1.PolicyEngine
	// SecretNamespace has the Secrets with the tokens of policy engines.
	SecretNamespace string
}

// moving is all that it takes to move pods to other nodes, and to say how one would go.
type moving struct {
	migration.Dependencies
	simulator *placement.Simulator
	judge     *policy.Judge
}

func newMoving(op *operator.Operator, cluster *state.Cluster, store *rtstate.Store, queue *orchestration.Queue, o Migrations) moving {
	m := moving{
		simulator: &placement.Simulator{Client: op.GetClient(), Cluster: cluster, Recorder: op.EventRecorder, Clock: op.Clock},
		judge: policy.NewJudge(policy.Options{
			Client: op.GetClient(), Secrets: op.GetAPIReader(), Namespace: o.SecretNamespace, Clock: op.Clock, Default: o.Engine,
		}),
	}
	m.Dependencies = migration.Dependencies{
		Clock: op.Clock, Client: op.GetClient(), API: op.GetAPIReader(), Store: store, Recorder: recorder{op.EventRecorder},
		Running:   func() []*v1alpha1.RTAction { return queue.Running(rules.Migrate) },
		Placement: m.simulator, Judge: m.judge, Namespaces: o.Namespaces, Checkpointing: o.Checkpointing, Gating: o.Gating, Evicting: make(chan struct{}, 1),
	}
	return m
}

// loops move pods to other nodes. The queue's actions of that kind are done here, too.
func (m moving) loops(queue *orchestration.Queue, latest *usage.Latest, o Migrations) []controller.Controller {
	queue.Handle(rules.Migrate, migration.New(m.Dependencies))
	return []controller.Controller{
		migration.NewReconciler(migration.ReconcilerDependencies{
			Dependencies: m.Dependencies, Actions: queue, Rooms: m.simulator.Rooms, Load: latest.Load, Threshold: o.Threshold,
		}),
		&migration.Gates{Client: m.Client, API: m.API},
		&migration.Leftovers{Dependencies: m.Dependencies},
		&migration.Strays{Dependencies: m.Dependencies},
		&migrationpolicy.Controller{Client: m.Client, Tokens: m.judge},
	}
}

// passage is how the ladder's pods would go: by what whoever moves them finds.
func (m moving) passage(ctx context.Context, pod *rtstate.PodView, node string) (ladder.Passage, error) {
	way, err := m.Passage(ctx, pod, node)
	return ladder.Passage{
		Veto: way.Veto, Anywhere: way.Anywhere, Beside: way.Strategy == v1alpha1.StrategySurge, Anew: way.Stateless, Bound: way.Bound, Timeout: way.Timeout,
	}, err
}
