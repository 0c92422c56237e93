// Package move asks for migrations of pods, follows them, and aborts them.
package move

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// requestTimeout bounds one request.
const requestTimeout = 30 * time.Second

// Request is what is asked for.
type Request struct {
	Namespace, Pod string
	// UID of the pod; empty: of the one that has the name now.
	UID types.UID
	// To is a node; empty: the controller chooses.
	To string
	// Strategy; empty: the controller chooses.
	Strategy v1alpha1.MigrationStrategy
	Trigger  v1alpha1.MigrationTrigger
	Reason   string
	// Timeout is how long the migration may wait for its turn, and how long it may take from then on; 0: an hour, and by its size.
	Timeout time.Duration
	DryRun  bool
}

// Pod finds the pod that is to go, and says what is wrong with the request before it is made.
func Pod(ctx context.Context, c client.Client, r Request) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod := &corev1.Pod{}
	switch err := c.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Pod}, pod); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("pod %s/%s not found", r.Namespace, r.Pod)
	case err != nil:
		return nil, fmt.Errorf("reading pod %s/%s: %w", r.Namespace, r.Pod, err)
	}
	if r.To == "" {
		return pod, nil
	}
	if r.To == pod.Spec.NodeName {
		return nil, fmt.Errorf("pod %s/%s is on node %s already", r.Namespace, r.Pod, r.To)
	}
	switch err := c.Get(ctx, types.NamespacedName{Name: r.To}, &corev1.Node{}); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("node %s not found", r.To)
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", r.To, err)
	}
	return pod, nil
}

// Create asks for the migration. Once it has begun to it does not end with the context: nobody would know the name of what an
// interrupt has left, and could abort it.
func Create(ctx context.Context, c client.Client, r Request) (*v1alpha1.PodMigration, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	m := &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, GenerateName: prefix(r.Pod)},
		Spec: v1alpha1.PodMigrationSpec{
			PodName: r.Pod, PodUID: r.UID, TargetNode: r.To, Strategy: r.Strategy, Trigger: r.Trigger, Reason: r.Reason, DryRun: r.DryRun,
		},
	}
	if r.Timeout > 0 {
		m.Spec.Timeout, m.Spec.WaitTimeout = &metav1.Duration{Duration: r.Timeout}, &metav1.Duration{Duration: r.Timeout}
	}
	switch err := c.Create(ctx, m); {
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("creating PodMigration: the cluster does not know them; is Mainspring installed there?")
	case err != nil:
		return nil, fmt.Errorf("creating PodMigration for pod %s/%s: %w", r.Namespace, r.Pod, err)
	}
	return m, nil
}

// prefix of the generated name, which has room for what is generated.
func prefix(pod string) string {
	return pod[:min(len(pod), 200)] + "-"
}

// Abort asks for the end of a migration. What has cut over already goes on.
func Abort(ctx context.Context, c client.Client, key types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := c.Patch(ctx, m, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"abort":true}}`)))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("aborting PodMigration %s: %w", key, err)
	}
	return nil
}

// Get reads a migration; nil: it is gone.
func Get(ctx context.Context, c client.Client, key types.NamespacedName) (*v1alpha1.PodMigration, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m := &v1alpha1.PodMigration{}
	err := c.Get(ctx, key, m)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PodMigration %s: %w", key, err)
	}
	return m, nil
}

// Moved tells whether the pod runs elsewhere now, as it should.
func Moved(m *v1alpha1.PodMigration) bool { return m.Status.Phase == v1alpha1.MigrationSucceeded }

// Words are the phase, where to, and why, on one line.
func Words(m *v1alpha1.PodMigration) string {
	phase := m.Status.Phase
	if phase == "" {
		phase = v1alpha1.MigrationPending
	}
	out := string(phase)
	if m.Status.Strategy != "" {
		out += ", " + string(m.Status.Strategy)
	}
	if t := m.Status.Target; t != nil && t.Node != "" {
		out += ", to node " + t.Node
	}
	if why := reason(m); why != "" {
		out += ": " + why
	}
	return out
}

// reason is what the migration says about itself.
func reason(m *v1alpha1.PodMigration) string {
	if m.Status.Message != "" {
		return m.Status.Message
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionMigrationAdmitted); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return ""
}

// Summary says of one that is over what became of the pod.
func Summary(m *v1alpha1.PodMigration) string {
	pod := m.Namespace + "/" + m.Spec.PodName
	t := m.Status.Target
	if !Moved(m) || t == nil {
		return fmt.Sprintf("pod %s: %s", pod, Words(m))
	}
	out := fmt.Sprintf("pod %s runs on node %s", pod, t.Node)
	if t.PodName != "" && t.PodName != m.Spec.PodName {
		out += " as " + t.PodName
	}
	if m.Status.Strategy != "" {
		out += fmt.Sprintf(" (%s)", m.Status.Strategy)
	}
	if ms := m.Status.UnavailableMilliseconds; ms != nil {
		out += fmt.Sprintf("; it was unavailable for %.1f s", float64(*ms)/1000)
	}
	return out
}
