package operator

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/controllers"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// QueueOptions are the settings of the orchestration queue.
type QueueOptions struct {
	// NodeLimit is how many actions may share a node.
	NodeLimit int
	// NamespaceLimit is how many pods of a namespace may be on the move at once.
	NamespaceLimit int
	// ClusterLimit is how many actions may run at once.
	ClusterLimit int
	// AgeStep is after what wait an action counts as one class more critical.
	AgeStep time.Duration
}

func (o *QueueOptions) addFlags(fs *options.FlagSet) {
	fs.IntVar(&o.NodeLimit, "queue-node-limit", orchestration.DefaultNodeLimit, "How many actions (preemptions, migrations) may share a node at once")
	fs.IntVar(&o.NamespaceLimit, "queue-namespace-limit", orchestration.DefaultNamespaceLimit, "How many pods of a namespace actions may move or evict at once. An action that needs more never starts")
	fs.IntVar(&o.ClusterLimit, "queue-cluster-limit", orchestration.DefaultClusterLimit, "How many actions may run at once in the cluster")
	fs.DurationVar(&o.AgeStep, "queue-age-step", orchestration.DefaultAgeStep, "After what wait an action counts as one class of criticality more")
}

func (o *QueueOptions) validate() error {
	for _, limit := range []struct {
		flag  string
		value int
	}{{"queue-node-limit", o.NodeLimit}, {"queue-namespace-limit", o.NamespaceLimit}, {"queue-cluster-limit", o.ClusterLimit}} {
		if limit.value < 1 {
			return fmt.Errorf("--%s is %d; it must be at least 1 (how to halt actions is in docs/orchestration.md)", limit.flag, limit.value)
		}
	}
	if o.AgeStep < time.Second || o.AgeStep > 24*time.Hour {
		return fmt.Errorf("--queue-age-step is %s; it must be from 1s to 24h", o.AgeStep)
	}
	return nil
}

func (o *QueueOptions) queue() orchestration.Options {
	return orchestration.Options{NodeLimit: o.NodeLimit, NamespaceLimit: o.NamespaceLimit, ClusterLimit: o.ClusterLimit, AgeStep: o.AgeStep}
}

// namespaceFile has the namespace of a pod's ServiceAccount.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// queueLease is beside the Lease of the leader, which without a namespace of its own is in the pod's.
func queueLease(o *options.Options) types.NamespacedName {
	own := ""
	if data, err := os.ReadFile(namespaceFile); err == nil {
		own = strings.TrimSpace(string(data))
	}
	return controllers.LeaseOf(types.NamespacedName{Namespace: cmp.Or(o.LeaderElectionNamespace, own, "kube-system"), Name: o.LeaderElectionName})
}
