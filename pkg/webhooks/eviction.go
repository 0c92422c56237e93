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
	// comeBack is the Retry-After of an eviction whose pod is on its way. Clients of Kubernetes obey it by themselves,
	// ten times, before they return the error to their caller.
	comeBack = 2 * time.Second
	// gateTimeout bounds what the gate asks of the API server, within the timeout of the webhook itself.
	gateTimeout = 2 * time.Second
	// keptFor is how long a migration for an eviction is kept when it is over. An eviction that is asked for later begins
	// another one. For as long evictions by name are taken for ones of the pod that it has moved.
	keptFor = 5 * time.Minute
	// longestReason is how many bytes a PodMigration's reason has.
	longestReason = 1024
)

// Gate turns evictions of pods that may migrate into PodMigrations. It answers from what it knows and blocks no client:
// whenever it is in doubt, the eviction passes.
type Gate struct {
	// Synced is nil, or says what is still missing for answers. Pod finds a pod as the state cache has it.
	Synced func() error
	Pod    func(namespace, name string) (*state.PodView, bool)
	// Closed tells whether a node takes no pods any longer; nil: the gate does not know.
	Closed func(node string) bool
	// Client reads PodMigrations and NodeCheckpoints from a cache, and creates PodMigrations. Live reads nodes from the API server itself.
	Client client.Client
	Live   client.Reader
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
		return g.own(ctx, req, eviction)
	}
	if err := g.Synced(); err != nil || g.Deadline <= 0 {
		return g.pass(gateUnready, "")
	}
	pod, ok := g.Pod(req.Namespace, req.Name)
	switch {
	case !ok || pod.Deleting:
		return g.ending(ctx, req, eviction)
	case !meant(eviction, pod.UID):
		return g.pass(gateOther, "")
	}
	return g.answer(ctx, req, eviction, pod)
}

// answer is about a pod that is there. Whether it stands still comes before whether an eviction would have it migrate: it may have been moved with its state
// by a PodMigration or policy that says so.
func (g *Gate) answer(ctx context.Context, req admission.Request, eviction *policyv1.Eviction, pod *state.PodView) admission.Response {
	goes := migratable(pod)
	migrations := &v1alpha1.PodMigrationList{}
	err := g.Client.List(ctx, migrations, client.InNamespace(req.Namespace))
	o := of(migrations.Items, pod.UID)
	switch {
	case err != nil && goes:
		return g.pass(gateFailed, fmt.Sprintf("it is not migrated: reading PodMigrations: %s", err))
	case err != nil:
		return g.pass(gateFailed, fmt.Sprintf("it is not known whether the pod stands still: reading PodMigrations: %s", err))
	case dry(req, eviction) && goes:
		return g.pass(gateDryRun, "the pod would be migrated to another node first, and the eviction put off until that is over")
	case dry(req, eviction):
		return g.pass(gateOther, "")
	case o != nil && frozen(o):
		return g.later(req, o, "is being migrated")
	}
	if answer, known := g.still(ctx, req, pod.UID); known {
		return answer
	}
	if o == nil || o.Status.Phase.Over() {
		if answer, known := g.place(ctx, req, eviction, pod, migrations.Items); known {
			return answer
		}
	}
	if !goes {
		return g.pass(gateOther, "")
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
	case !g.puts(o):
		return g.pass(gateLate, fmt.Sprintf("PodMigration %s/%s has not ended within %s", o.Namespace, o.Name, g.Deadline))
	}
	return g.later(req, o, "is being migrated")
}

// puts tells whether a migration puts evictions off.
func (g *Gate) puts(o *v1alpha1.PodMigration) bool {
	return !o.Status.Phase.Over() && (frozen(o) || g.Clock.Now().Before(g.until(o)))
}

// until is when an eviction is not put off any longer: the deadline counts from when the migration has begun, and while it waits for its
// turn from when it was asked for.
func (g *Gate) until(o *v1alpha1.PodMigration) time.Time {
	if begun := o.Status.StartTime; begun != nil {
		return begun.Add(g.Deadline)
	}
	return o.CreationTimestamp.Add(g.Deadline)
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
	case apierrors.IsAlreadyExists(err):
		return g.named(ctx, req, pod, o)
	case err != nil:
		return g.pass(gateFailed, fmt.Sprintf("it is not migrated: creating a PodMigration: %s", err))
	default:
		evictions.WithLabelValues(gateBegun).Inc()
	}
	return g.later(req, o, "is being migrated")
}

// named answers where a PodMigration of the eviction's name is there already: as a rule one that the cache does not show
// yet, else one that a user or another controller has made. Its own deadline counts. The eviction does not wait for a
// dry run, which moves nothing.
func (g *Gate) named(ctx context.Context, req admission.Request, pod *state.PodView, o *v1alpha1.PodMigration) admission.Response {
	is := &v1alpha1.PodMigration{}
	switch err := g.Client.Get(ctx, client.ObjectKeyFromObject(o), is); {
	case apierrors.IsNotFound(err):
		o.CreationTimestamp = metav1.Time{Time: g.Clock.Now()}
		return g.later(req, o, "is being migrated")
	case err != nil:
		return g.pass(gateFailed, fmt.Sprintf("it is not migrated: reading PodMigration %s/%s: %s", o.Namespace, o.Name, err))
	case is.Spec.DryRun:
		return g.pass(gateFailed, fmt.Sprintf("it is not migrated: PodMigration %s/%s has the name of its migration, and is a dry run", o.Namespace, o.Name))
	}
	return g.decide(ctx, req, pod, is)
}

// trigger is why the pod is to go. Its node is drained, by ourselves (Karpenter's termination is in this process) or by
// the user who has cordoned it, or a client wants only this pod gone.
func (g *Gate) trigger(ctx context.Context, req admission.Request, node string) v1alpha1.MigrationTrigger {
	if self, err := g.Self(ctx); err == nil && self != "" && req.UserInfo.Username == self {
		return v1alpha1.TriggerDrain
	}
	if g.Closed != nil && g.Closed(node) {
		return v1alpha1.TriggerDrain
	}
	return v1alpha1.TriggerEviction
}

// later tells the caller to come again, and how the pod and the migration belong together.
func (g *Gate) later(req admission.Request, o *v1alpha1.PodMigration, how string) admission.Response {
	evictions.WithLabelValues(gateLater).Inc()
	phase := o.Status.Phase
	if phase == "" {
		phase = v1alpha1.MigrationPending
	}
	message := fmt.Sprintf("pod %s/%s %s to another node by PodMigration %s (%s): come again", req.Namespace, req.Name, how, o.Name, phase)
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

// ours tells whether an action of the orchestration queue evicts the pod. Any client could write the annotation, so it is
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
