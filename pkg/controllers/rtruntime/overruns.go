package rtruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// ContainerIDField is the index of Pods by the IDs of their running containers, without the runtime.
const ContainerIDField = "status.containerID"

// IndexContainerIDs adds that index; call it before the cache starts.
func IndexContainerIDs(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.Pod{}, ContainerIDField, containerIDs); err != nil {
		return fmt.Errorf("indexing pods by %s: %w", ContainerIDField, err)
	}
	return nil
}

func containerIDs(o client.Object) []string {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	var out []string
	for s := range running(pod) {
		if id, err := frontdoor.ParseContainerID(s.ContainerID); err == nil {
			out = append(out, id.ID)
		}
	}
	return out
}

// running are the statuses of containers that run.
func running(pod *corev1.Pod) func(yield func(corev1.ContainerStatus) bool) {
	return func(yield func(corev1.ContainerStatus) bool) {
		for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
			for _, s := range list {
				if s.State.Running != nil && !yield(s) {
					return
				}
			}
		}
	}
}

// Overruns takes overruns that programs on nodes report, as MC-Kube's do: each asks for the high budget of its
// container, within the plan, as a busy node does for all of them. It runs on every replica; what it writes,
// the leader's loop over nodes obeys. All fields are required.
type Overruns struct {
	// Pods reads from a cache with the index ContainerIDField.
	Pods client.Reader
	// Live reads past the cache.
	Live   client.Reader
	Client client.Client
	Store  *state.Store
	Clock  clock.PassiveClock
}

// Results of a report.
const (
	// ResultAccepted is an overrun that asks for the high budget.
	ResultAccepted = "accepted"
	// ResultDuplicate is one that was known, or is older than one that was.
	ResultDuplicate = "duplicate"
	// ResultIgnored is one of a container that is not raised.
	ResultIgnored = "ignored"
)

// OverrunReply is the answer to a report.
type OverrunReply struct {
	Result    string `json:"result"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Reason is why nothing was done; empty when something was.
	Reason string `json:"reason,omitempty"`
}

// Report takes one overrun. The error is a frontdoor.Problem, or what went wrong here.
func (o *Overruns) Report(ctx context.Context, r frontdoor.Overrun) (OverrunReply, error) {
	if o.Store.Synced() != nil {
		return OverrunReply{}, frontdoor.Unavailable("the controller does not know the cluster yet")
	}
	pod, container, err := o.find(ctx, r.ContainerID)
	if err != nil {
		return OverrunReply{}, err
	}
	reply := OverrunReply{Result: ResultAccepted, Namespace: pod.Namespace, Pod: pod.Name, Container: container}
	if pod.Spec.NodeName != r.Node {
		return OverrunReply{}, frontdoor.NotAllowed("node_name is %q; container %s of pod %s/%s runs on node %q", r.Node, container, pod.Namespace, pod.Name, pod.Spec.NodeName)
	}
	node, _ := o.Store.Snapshot().NodeView(r.Node)
	id := rtdra.ServerID(pod.UID, container)
	server, ok := serverIn(node, id)
	switch {
	case !ok:
		return OverrunReply{}, frontdoor.NotAllowed("container %s of pod %s/%s has no real-time budget on node %s; a McKube gives it one", container, pod.Namespace, pod.Name, r.Node)
	case !server.MayEscalate() && !plannedRaise(node, id):
		reply.Result, reply.Reason = ResultIgnored, fmt.Sprintf("criticality %s with budgets of %d to %d us is not raised on its core", server.Criticality, server.Low, server.High)
		return reply, nil
	}
	news, err := o.write(ctx, node, id, r.Timestamp)
	if err == nil && !news {
		reply.Result, reply.Reason = ResultDuplicate, "an overrun of the container with this or a later timestamp is known"
	}
	if err == nil && news {
		log.FromContext(ctx).Info("Overrun reported", "Node", r.Node, "Pod", client.ObjectKeyFromObject(pod), "container", container, "containerID", r.ContainerID.ID, "timestamp", r.Timestamp)
	}
	return reply, err
}

// find is the one container that runs under exactly this ID.
func (o *Overruns) find(ctx context.Context, id frontdoor.ContainerID) (*corev1.Pod, string, error) {
	pods := &corev1.PodList{}
	if err := o.Pods.List(ctx, pods, client.MatchingFields{ContainerIDField: id.ID}); err != nil {
		return nil, "", fmt.Errorf("looking for a container: %w", err)
	}
	var found *corev1.Pod
	name := ""
	for i := range pods.Items {
		for s := range running(&pods.Items[i]) {
			if !id.Is(s.ContainerID) {
				continue
			}
			if found != nil {
				return nil, "", frontdoor.NotAllowed("container_id %s is that of containers of several pods", id.ID)
			}
			found, name = &pods.Items[i], s.Name
		}
	}
	if found == nil {
		return nil, "", frontdoor.NotFound("container_id %s is that of no running container", id.ID)
	}
	return found, name, nil
}

// serverIn is the server of a container that the node was told to run.
func serverIn(n *state.NodeView, id string) (*state.ServerView, bool) {
	if n == nil || n.RTNode == nil {
		return nil, false
	}
	s, ok := n.Server(id)
	return s, ok && s.Spec != nil && s.McKube != nil
}

// plannedRaise reports whether a plan of the node raises a container.
func plannedRaise(n *state.NodeView, id string) bool {
	if n == nil || n.RTNode == nil {
		return false
	}
	for _, p := range n.RTNode.Spec.Plan {
		if slices.ContainsFunc(p.Raise, func(r v1alpha1.RTRaise) bool { return rtdra.ServerID(r.PodUID, r.Container) == id }) {
			return true
		}
	}
	return false
}

// write adds the overrun to the annotation, and tries again when another writer has changed the RTNode.
func (o *Overruns) write(ctx context.Context, n *state.NodeView, id string, timestamp uint64) (news bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		r := &v1alpha1.RTNode{}
		if err := o.Live.Get(ctx, client.ObjectKey{Name: n.Name}, r); err != nil {
			return err
		}
		var annotation string
		annotation, news, err = ask(r, id, asked{Timestamp: timestamp, At: o.Clock.Now().UTC()})
		if err != nil || !news {
			return err
		}
		return o.annotate(ctx, r, annotation)
	})
	switch {
	case apierrors.IsNotFound(err):
		return false, frontdoor.NotFound("node %s has no RTNode any more", n.Name)
	case apierrors.IsConflict(err):
		return false, frontdoor.Unavailable("RTNode %s is being written by others all the time; try again", n.Name)
	case err != nil:
		return false, fmt.Errorf("recording an overrun on RTNode %s: %w", n.Name, err)
	}
	return news, nil
}

// annotate changes one annotation of exactly the version that was read, and nothing else.
func (o *Overruns) annotate(ctx context.Context, r *v1alpha1.RTNode, annotation string) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": r.UID, "resourceVersion": r.ResourceVersion, "annotations": map[string]string{v1alpha1.AnnotationAsked: annotation},
	}})
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	target := &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}
	return o.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, data), client.FieldOwner(FieldManager))
}
