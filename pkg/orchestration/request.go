package orchestration

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Request asks for an action. The fields are those of RTActionSpec.
type Request struct {
	Kind            rules.Kind
	Reason, Message string
	// Cause names the pressure that the action answers, the same each time it is asked for, and another one when
	// it has come again.
	Cause       string
	Beneficiary v1alpha1.ActionBeneficiary
	Pods        []v1alpha1.ActionPod
	// Node that it is done to, TargetNode that pods go to, NodePool of a node that is opened or replaced.
	Node, TargetNode, NodePool string
	// Moves of containers to other cores of Node, for kind Rearrange only: 64 at most.
	Moves []v1alpha1.ActionMove
	// Displaces are the pods with real-time containers that leave Node with it, for kind ReplaceNode only: 200 at most. A
	// controller that asks again for the same node asks for the same action, whatever runs there by then.
	Displaces []v1alpha1.ActionPod
	// Beside: another pod serves before one of Pods goes; else none does.
	Beside bool
	// Uses beside those that follow from the above.
	Uses []v1alpha1.ActionUse
	// StartBy is until when it is of use to begin; zero: always.
	StartBy time.Time
	// Timeout is how long it may run, and how long undoing it may take.
	Timeout time.Duration
}

// Ticket is how far a submitted action has come.
type Ticket struct {
	// Name of the RTAction.
	Name  string
	Phase rules.Phase
	// Attempt is which it is, not counting those before that could not begin as their node was being disrupted.
	Attempt int32
	// WaitingFor is what it waits for, in a word, and Message the same, or why it is in its phase, in words.
	WaitingFor, Message string
	// Again is when the next attempt may be asked for, of an action that came to nothing; zero: not for this cause.
	Again time.Time
}

var word = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

// validate tells what the API server, or the rules, would say to it.
func (r Request) validate() error {
	switch {
	case !word.MatchString(r.Reason):
		return fmt.Errorf("reason: %q is not one PascalCase word", r.Reason)
	case r.Cause == "" || len(r.Cause) > 256:
		return fmt.Errorf("cause: %q must have 1 to 256 bytes", r.Cause)
	case r.Beneficiary.Name == "":
		return fmt.Errorf("beneficiary.name: must not be empty")
	case r.Timeout > 24*time.Hour || r.Timeout%time.Millisecond != 0:
		return fmt.Errorf("timeout: %s is not at most 24h, in whole milliseconds", r.Timeout)
	case len(r.Pods) > 200:
		return fmt.Errorf("pods: %d are more than 200", len(r.Pods))
	case len(r.Moves) > 0 && r.Kind != rules.Rearrange:
		return fmt.Errorf("moves: only actions of kind Rearrange have them, not those of kind %s", r.Kind)
	case len(r.Displaces) > 0 && r.Kind != rules.ReplaceNode:
		return fmt.Errorf("displaces: only actions of kind ReplaceNode do, not those of kind %s", r.Kind)
	case len(r.Displaces) > 200:
		return fmt.Errorf("displaces: %d are more than 200", len(r.Displaces))
	case len(r.Moves) > 64:
		return fmt.Errorf("moves: %d are more than 64", len(r.Moves))
	}
	_, err := record.Read(r.object("new", 1, 1, time.Unix(1, 0)))
	return err
}

// key stands for the same thing done for the same cause.
func (r Request) key() string {
	sum := sha256.Sum256([]byte(deed(r.spec())))
	return hex.EncodeToString(sum[:6])
}

// spec is what says what is asked for.
func (r Request) spec() v1alpha1.RTActionSpec {
	return v1alpha1.RTActionSpec{
		Kind: v1alpha1.ActionKind(r.Kind), Cause: r.Cause, Node: r.Node, TargetNode: r.TargetNode, NodePool: r.NodePool, Pods: r.Pods, Moves: r.Moves,
	}
}

// deed is what an action does, to what, and why.
func deed(s v1alpha1.RTActionSpec) string {
	pods := make([]string, 0, len(s.Pods))
	for _, p := range s.Pods {
		pods = append(pods, string(p.UID))
	}
	slices.Sort(pods)
	moves := make([]string, 0, len(s.Moves))
	for _, m := range s.Moves {
		moves = append(moves, fmt.Sprintf("%s/%s>%d", m.PodUID, m.Container, m.Core))
	}
	slices.Sort(moves)
	return strings.Join(slices.Concat([]string{string(s.Kind), s.Cause, s.Node, s.TargetNode, s.NodePool}, pods, moves), "\x00")
}

// object stores the request, which is asked for since a time.
func (r Request) object(key string, attempt, tries int32, since time.Time) *v1alpha1.RTAction {
	o := &v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{
			Name:       record.Name(r.Kind, key, attempt),
			Labels:     map[string]string{v1alpha1.LabelActionKey: key},
			Finalizers: []string{v1alpha1.FinalizerAction},
		},
		Spec: v1alpha1.RTActionSpec{
			Kind: v1alpha1.ActionKind(r.Kind), Reason: r.Reason, Message: record.Short(r.Message, 1024), Cause: r.Cause, Attempt: attempt, Tries: tries,
			Beneficiary: r.Beneficiary, Pods: r.Pods, Node: r.Node, TargetNode: r.TargetNode, NodePool: r.NodePool,
			Moves: r.Moves, Displaces: r.Displaces, Uses: r.Uses, Beside: r.Beside,
			Since: micro(since), StartBy: micro(r.StartBy), Timeout: metav1.Duration{Duration: r.Timeout},
		},
	}
	o.Spec.Beneficiary.Criticality = cmp.Or(r.Beneficiary.Criticality, "Low")
	return o
}

func micro(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.Truncate(time.Microsecond)}
}

// RestAfter is how long nothing is tried again after so many attempts that came to nothing.
func RestAfter(attempts int32) time.Duration {
	out := rest
	for i := int32(1); i < attempts && out < restMost; i++ {
		out *= 2
	}
	return min(out, restMost)
}

// nextAttempt is when another attempt may be made after one that is over; zero: never for its cause. Opening a node moves no
// pod: by the time that a pod could go there the node may be full, or gone.
func nextAttempt(o *v1alpha1.RTAction, a rules.Action) time.Time {
	if inVain(a) || a.Phase == rules.Succeeded && a.Kind == rules.OpenNode {
		return a.Entered.Add(RestAfter(tries(o)))
	}
	return time.Time{}
}

// tries is how many attempts there were up to this one, but for those that a disruption of the node kept from beginning: these say nothing about the next.
func tries(o *v1alpha1.RTAction) int32 { return cmp.Or(o.Spec.Tries, o.Spec.Attempt) }

// KeptByDisruption tells whether an action could not begin because its node was being closed or replaced.
func KeptByDisruption(o *v1alpha1.RTAction) bool {
	return phaseOf(o) == rules.Expired && o.Status.WaitingFor == ReasonNodeBeingDisrupted
}
