package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// PathEvictions is the webhook of evictions.
	PathEvictions = "/evictions"
	// comeBack is the Retry-After of an eviction whose pod is on its way. Clients of Kubernetes obey it by themselves, ten times, before
	// they say so to whoever called them.
	comeBack = 2 * time.Second
	// gateTimeout bounds what the gate asks of the API server, within the timeout of the webhook itself.
	gateTimeout = 2 * time.Second
	// keptFor is how long a migration for an eviction is kept when it is over. An eviction that is asked for later begins
	// another one.
	keptFor = 5 * time.Minute
	// longestReason is how many bytes a PodMigration's reason has.
	longestReason = 1024
)

// Gate turns evictions of pods that may migrate into PodMigrations. It answers from what it knows and stands in nobody's
// way: whenever it is in doubt, the eviction passes.
type Gate struct {
	// Synced is nil, or says what is still missing for answers. Pod finds a pod as the state cache has it.
	Synced func() error
	Pod    func(namespace, name string) (*state.PodView, bool)
	// Closed tells whether a node takes no pods any longer; nil: nobody knows.
	Closed func(node string) bool
	// Client reads PodMigrations and NodeCheckpoints from a cache, and creates PodMigrations.
	Client client.Client
	Clock  clock.PassiveClock
	// Deadline is how long an eviction is put off; 0: not at all.
	Deadline time.Duration
	// Self is the user that this controller is. Its evictions for actions of the queue, which say so, pass.
	Self func(context.Context) (string, error)
}

// EvictionMigration is the name of the PodMigration that the eviction of a pod becomes.
func EvictionMigration(pod types.UID) string { return "eviction-" + string(pod) }

// handle answers an eviction.
func (g *Gate) handle(ctx context.Context, req admission.Request) admission.Response {
	eviction := &policyv1.Eviction{}
	if err := json.Unmarshal(req.Object.Raw, eviction); err != nil {
		return g.pass(gateUnreadable, "")
	}
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	if g.ours(ctx, eviction, req.UserInfo.Username) {
		return g.pass(gateOwn, "")
	}
	if err := g.Synced(); err != nil || g.Deadline <= 0 {
		return g.pass(gateUnready, "")
	}
	pod, ok := g.Pod(req.Namespace, req.Name)
	if !ok || !migratable(pod) || !meant(eviction, pod.UID) {
		return g.pass(gateOther, "")
	}
	migrations := &v1alpha1.PodMigrationList{}
	if err := g.Client.List(ctx, migrations, client.InNamespace(req.Namespace)); err != nil {
		return g.pass(gateFailed, fmt.Sprintf("it is not migrated: reading PodMigrations: %s", err))
	}
	if dry(req, eviction) {
		return g.pass(gateDryRun, "the pod would be migrated to another node first, and the eviction put off until that is over")
	}
	o := of(migrations.Items, pod.UID)
	if o == nil || !frozen(o) {
		switch nc, err := g.standsFor(ctx, pod.UID); {
		case err != nil:
			return g.pass(gateFailed, fmt.Sprintf("it is not known whether the pod stands still: reading NodeCheckpoints: %s", err))
		case nc == nil:
		case g.abandoned(nc):
			return g.pass(gateLate, fmt.Sprintf("pod %s/%s stands still for NodeCheckpoint %s, and the agent of node %s has not let it go on within %s: what it has in memory is lost",
				req.Namespace, req.Name, nc.Name, nc.Spec.SourceNode, g.Deadline))
		default:
			return g.undone(req, nc.Name)
		}
	}
	return g.decide(ctx, req, pod, o)
}

// decide answers for a pod that may migrate, by the PodMigration that it has; nil for none.
func (g *Gate) decide(ctx context.Context, req admission.Request, pod *state.PodView, o *v1alpha1.PodMigration) admission.Response {
	switch {
	case o == nil:
		return g.begin(ctx, req, pod)
	case o.Status.Phase.Over():
		return g.pass(gateOver, fmt.Sprintf("PodMigration %s/%s is over (%s): %s", o.Namespace, o.Name, o.Status.Phase, o.Status.Message))
	case !frozen(o) && !g.Clock.Now().Before(g.until(o)):
		return g.pass(gateLate, fmt.Sprintf("PodMigration %s/%s has not ended within %s", o.Namespace, o.Name, g.Deadline))
	}
	return g.later(req, o)
}

// until is when an eviction is not put off any longer: the deadline counts from when the migration has begun, and while it waits for its
// turn from when it was asked for.
func (g *Gate) until(o *v1alpha1.PodMigration) time.Time {
	if begun := o.Status.StartTime; begun != nil {
		return begun.Add(g.Deadline)
	}
	return o.CreationTimestamp.Add(g.Deadline)
}

// frozen tells whether the pod's state is on its way: the pod stands still, and to evict it would destroy what it is. Such a migration ends by
// its own time.
func frozen(o *v1alpha1.PodMigration) bool {
	if o.Status.Strategy != v1alpha1.StrategyCheckpoint {
		return false
	}
	switch o.Status.Phase {
	case "", v1alpha1.MigrationPending, v1alpha1.MigrationReserving:
		return false
	}
	return !o.Status.Phase.Over()
}

// standsFor names the NodeCheckpoint for which the pod may stand still, whatever its PodMigration says: a rollback may take longer than it had. Until
// its agent has let it go on, the pod's state is nowhere else. One that is to go, as another has its state, may go. Nil: there is none.
func (g *Gate) standsFor(ctx context.Context, pod types.UID) (*v1alpha1.NodeCheckpoint, error) {
	states := &v1alpha1.NodeCheckpointList{}
	if err := g.Client.List(ctx, states); err != nil {
		return nil, err
	}
	for i := range states.Items {
		nc := &states.Items[i]
		if nc.Spec.PodUID == pod && !nc.Spec.Stage.GivenUp() && !nc.Status.Source.Settled() {
			return nc, nil
		}
	}
	return nil, nil
}

// abandoned tells that the pod should have gone on long ago and its agent does not have it do so: one that is gone for good would hold up the drain
// of its node for ever. Agents let pods go on by themselves once the time of a NodeCheckpoint is over.
func (g *Gate) abandoned(nc *v1alpha1.NodeCheckpoint) bool {
	return nc.Spec.Stage == v1alpha1.StageDiscard && !g.Clock.Now().Before(nc.Spec.Expires.Add(g.Deadline))
}

// undone tells the caller to come again when the pod runs on.
func (g *Gate) undone(req admission.Request, nc string) admission.Response {
	evictions.WithLabelValues(gateLater).Inc()
	return refused(apierrors.NewTooManyRequests(fmt.Sprintf(
		"pod %s/%s stands still for NodeCheckpoint %s, and what it has in memory may be nowhere else: come again when that is undone, or has gone on", req.Namespace, req.Name, nc), int(comeBack.Seconds())))
}

// begin has the pod migrated.
func (g *Gate) begin(ctx context.Context, req admission.Request, pod *state.PodView) admission.Response {
	o := &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: EvictionMigration(pod.UID),
			Finalizers: []string{v1alpha1.FinalizerMigration}, // which it gets in any case, by a write more
		},
		Spec: v1alpha1.PodMigrationSpec{
			PodName: pod.Name, PodUID: pod.UID, Trigger: g.trigger(ctx, req, pod.NodeName),
			Reason:                  short(fmt.Sprintf("%s asked for its eviction from node %s", req.UserInfo.Username, pod.NodeName), longestReason),
			TTLSecondsAfterFinished: ptr.To(int32(keptFor.Seconds())),
			WaitTimeout:             &metav1.Duration{Duration: max(g.Deadline, time.Second)},
		},
	}
	err := g.Client.Create(ctx, o)
	switch {
	case apierrors.IsAlreadyExists(err): // the cache does not show it yet
		o.CreationTimestamp = metav1.Time{Time: g.Clock.Now()}
	case err != nil:
		return g.pass(gateFailed, fmt.Sprintf("it is not migrated: creating a PodMigration: %s", err))
	default:
		evictions.WithLabelValues(gateBegun).Inc()
	}
	return g.later(req, o)
}

// trigger is why the pod is to go: its node is drained, by ourselves (Karpenter's termination is in this process) or whoever has cordoned it,
// or somebody wants this one pod gone.
func (g *Gate) trigger(ctx context.Context, req admission.Request, node string) v1alpha1.MigrationTrigger {
	if self, err := g.Self(ctx); err == nil && self != "" && req.UserInfo.Username == self {
		return v1alpha1.TriggerDrain
	}
	if g.Closed != nil && g.Closed(node) {
		return v1alpha1.TriggerDrain
	}
	return v1alpha1.TriggerEviction
}

// later tells the caller to come again.
func (g *Gate) later(req admission.Request, o *v1alpha1.PodMigration) admission.Response {
	evictions.WithLabelValues(gateLater).Inc()
	phase := o.Status.Phase
	if phase == "" {
		phase = v1alpha1.MigrationPending
	}
	message := fmt.Sprintf("pod %s/%s is being migrated to another node by PodMigration %s (%s): come again", req.Namespace, req.Name, o.Name, phase)
	if frozen(o) {
		message += "; its state is on its way, so it may not be evicted until that is over"
	} else {
		message += "; from " + g.until(o).UTC().Format(time.RFC3339) + " on it may be evicted all the same"
	}
	return refused(apierrors.NewTooManyRequests(message, int(comeBack.Seconds())))
}

// pass lets the eviction go on, to PodDisruptionBudgets and all that else decides.
func (g *Gate) pass(why, warning string) admission.Response {
	evictions.WithLabelValues(why).Inc()
	response := admission.Allowed("")
	if warning != "" {
		return response.WithWarnings(short(warning, 250)) // longer ones are cut by clients
	}
	return response
}

// ours tells whether an action of the orchestration queue evicts the pod. Anybody could write the annotation, so it is
// believed only from ourselves.
func (g *Gate) ours(ctx context.Context, eviction *policyv1.Eviction, user string) bool {
	if eviction.Annotations[v1alpha1.AnnotationMigration] == "" && eviction.Annotations[v1alpha1.AnnotationAction] == "" {
		return false
	}
	self, err := g.Self(ctx)
	return err == nil && self != "" && user == self
}

// migratable tells whether the pod runs and its McKubes let it migrate: with its owner, that makes it again elsewhere, or
// with its state.
func migratable(pod *state.PodView) bool {
	if pod.Deleting || pod.Finished() || pod.NodeName == "" || pod.Phase != corev1.PodRunning || len(pod.Governed) == 0 {
		return false
	}
	stateful := false
	for _, governed := range pod.Governed {
		if governed.McKube == nil {
			continue
		}
		switch m := governed.McKube.Spec.Migration; {
		case m == nil:
		case m.Policy == mcv1.MigrationNever:
			return false
		case m.Policy == mcv1.MigrationCheckpoint:
			stateful = true
		}
	}
	return pod.Owned || stateful
}

// meant tells whether the eviction is of this very pod.
func meant(eviction *policyv1.Eviction, uid types.UID) bool {
	o := eviction.DeleteOptions
	return o == nil || o.Preconditions == nil || o.Preconditions.UID == nil || *o.Preconditions.UID == uid
}

// dry tells whether it is only asked. kubectl drain says so in the options of the deletion.
func dry(req admission.Request, eviction *policyv1.Eviction) bool {
	return ptr.Deref(req.DryRun, false) || eviction.DeleteOptions != nil && slices.Contains(eviction.DeleteOptions.DryRun, metav1.DryRunAll)
}

// of finds the migration of a pod: one that is under way, else that of its eviction which is over; nil for none.
func of(all []v1alpha1.PodMigration, pod types.UID) (found *v1alpha1.PodMigration) {
	for i := range all {
		o := &all[i]
		same := o.Spec.PodUID == pod || o.Status.Source != nil && o.Status.Source.PodUID == pod
		switch {
		case !same || o.Spec.DryRun:
		case !o.Status.Phase.Over():
			return o
		case o.Name == EvictionMigration(pod):
			found = o
		}
	}
	return found
}

// serve is the handler; without a gate evictions pass.
func (g *Gate) serve() admission.HandlerFunc {
	return func(ctx context.Context, req admission.Request) admission.Response {
		if g == nil || req.SubResource != "eviction" {
			return admission.Allowed("")
		}
		return g.handle(ctx, req)
	}
}

// short cuts a text to so many bytes, between characters.
func short(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "")
}

// Self asks the API server, until it has answered once, which user the client is.
func Self(c client.Client) func(context.Context) (string, error) {
	var known atomic.Pointer[string]
	return func(ctx context.Context) (string, error) {
		if name := known.Load(); name != nil {
			return *name, nil
		}
		review := &authenticationv1.SelfSubjectReview{}
		if err := c.Create(ctx, review); err != nil {
			return "", fmt.Errorf("asking who we are: %w", err)
		}
		known.Store(&review.Status.UserInfo.Username)
		return review.Status.UserInfo.Username, nil
	}
}
