package ladder

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// lateAgain is the backoff for a container that left a node because it missed its deadlines there. Until it is over no action
// moves the container from another node for that reason. It doubles each time.
const lateAgain = 10 * time.Minute

const (
	// mostLeft is how many pods a McKube remembers. mostPeers is how many pods of the same age it tells from their replacements.
	mostLeft  = 64
	mostPeers = 16
)

// left is a pod that left its node because it missed its deadlines there. The controller writes it on the McKube before it
// submits the action. The McKube also governs the replacement pod, whichever controller makes that. If the action comes to
// nothing the pod is still there, and has no replacement to which the entry would apply.
type left struct {
	Pod  types.UID `json:"pod"`
	Node types.UID `json:"node"`
	At   time.Time `json:"at"`
	// Times is how often this happened in short succession, to this pod and to the pods that it replaced.
	Times int `json:"times"`
	// Newest is when the youngest pod of the McKube was made at that time. Peers are the pods made in that second. A younger pod
	// may be the replacement. It is the API server's time.
	Newest metav1.Time `json:"newest"`
	Peers  []types.UID `json:"peers,omitempty"`
}

// departure is the record that the controller keeps on a McKube when pods of it leave.
type departure struct {
	McKube *mcv1.McKube
	Left   []left
}

// leftBy reads the record, the latest first. It ignores a record that it cannot parse.
func leftBy(m *mcv1.McKube) []left {
	var out []left
	if json.Unmarshal([]byte(m.Annotations[mcv1.AnnotationLeftLate]), &out) != nil {
		return nil
	}
	slices.SortStableFunc(out, func(a, b left) int { return b.At.Compare(a.At) })
	return out
}

func (l left) rest() time.Duration { return lateAgain << min(max(l.Times-1, 0), mostRelapses) }

// recent tells whether leaving again counts as one more time.
func (l left) recent(now time.Time) bool { return now.Before(l.At.Add(2 * l.rest())) }

// elsewhere tells whether the pod left another node recently: then this node is not at fault.
func (l left) elsewhere(node types.UID, now time.Time) bool {
	return l.Node != node && now.Before(l.At.Add(l.rest()))
}

// mayBeReplacedBy tells whether a pod was made after the other pod left.
func (l left) mayBeReplacedBy(pod *state.PodView) bool {
	return l.Newest.Before(&pod.Created) || l.Newest.Equal(&pod.Created) && !slices.Contains(l.Peers, pod.UID)
}

// predecessor is the pod that the pod of a container replaces, if that pod left its node because it was late. Migrations record
// which pod they replace. Any other pod takes the place of a pod that has gone and has no known replacement.
func (p *planner) predecessor(s *state.ServerView) (left, bool) {
	own, ok := p.Snapshot.Pod(s.PodUID)
	if !ok {
		return left{}, false
	}
	if own.Replaces == "" {
		l, ok := p.replacementPods(s.McKube)[own.UID]
		return l, ok
	}
	for _, l := range leftBy(s.McKube) {
		if l.Pod == own.Replaces && l.Pod != own.UID {
			return l, true
		}
	}
	return left{}, false
}

// replacementPods maps pods to the departed pods that they replace, for departed pods without a known replacement. The
// replacement of each, beginning with the one that left first, is the oldest pod made after it. A pod has one replacement,
// however many pods are made later.
func (p *planner) replacementPods(m *mcv1.McKube) map[types.UID]left {
	out, pods := map[types.UID]left{}, slices.Clone(p.Snapshot.PodsFor(m))
	slices.SortFunc(pods, func(a, b *state.PodView) int {
		return cmp.Or(a.Created.Compare(b.Created.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, l := range slices.Backward(leftBy(m)) {
		at := slices.IndexFunc(pods, func(pod *state.PodView) bool {
			_, taken := out[pod.UID]
			return !taken && pod.Replaces == "" && pod.UID != l.Pod && l.mayBeReplacedBy(pod)
		})
		if at >= 0 && p.unreplaced(m, l.Pod) {
			out[pods[at].UID] = l
		}
	}
	return out
}

// unreplaced tells whether a pod has gone, or is being deleted, and no pod is known to replace it.
func (p *planner) unreplaced(m *mcv1.McKube, uid types.UID) bool {
	if view, ok := p.Snapshot.Pod(uid); ok && !view.Deleting {
		return false
	}
	return !slices.ContainsFunc(p.Snapshot.PodsFor(m), func(o *state.PodView) bool { return o.Replaces == uid })
}

// byNode tells whether the node may be at fault for the pressure on a container, and not the container's neighbours.
func (p *planner) byNode(s AffectedContainer) bool { return s.Source == SourceMisses || p.refused(s) }

// failedElsewhere tells whether a container misses its deadlines here, or is refused its budget, and its predecessor recently
// left another node for that reason.
func (p *planner) failedElsewhere(s AffectedContainer) bool {
	if !p.byNode(s) {
		return false
	}
	l, ok := p.predecessor(s.ServerView)
	return ok && l.elsewhere(p.Node.UID, p.Now)
}

// failedElsewhereMessages describes these containers.
func (p *planner) failedElsewhereMessages() []string {
	var out []string
	for _, s := range p.Affected {
		if p.failedElsewhere(s) {
			l, _ := p.predecessor(s.ServerView)
			what := "late"
			if s.Source != SourceMisses {
				what = "refused its budget"
			}
			out = append(out, fmt.Sprintf("%s is %s here, too: the pod in whose place it is was to leave another node at %s because it was that there; it stays until %s",
				s.Where(), what, l.At.Format(time.RFC3339), l.At.Add(l.rest()).Format(time.RFC3339)))
		}
	}
	return out
}

// leaving lists the pods that leave the node by an action because they are late. Actions may move their replacements, and no
// other pods, for that reason only after a backoff.
func (p *planner) leaving(o option) []departure {
	var out []departure
	for _, s := range p.Affected {
		if !p.byNode(s) || !slices.Contains(o.departing, s.PodUID) {
			continue
		}
		at := slices.IndexFunc(out, func(d departure) bool { return d.McKube == s.McKube })
		if at < 0 {
			kept := slices.DeleteFunc(leftBy(s.McKube), func(l left) bool { return !l.recent(p.Now) })
			out, at = append(out, departure{s.McKube, kept}), len(out)
		}
		out[at].Left = p.with(out[at].Left, s.ServerView)
	}
	return out
}

// with adds a pod that leaves now. Its entry stands for the pods that it replaced.
func (p *planner) with(list []left, s *state.ServerView) []left {
	next := left{Pod: s.PodUID, Node: p.Node.UID, At: p.Now.UTC().Truncate(time.Second), Times: 1}
	next.Newest, next.Peers = newest(p.Snapshot.PodsFor(s.McKube))
	before, any := p.predecessor(s)
	if any && before.recent(p.Now) {
		next.Times = before.Times + 1
	}
	out := []left{next}
	for _, l := range list {
		switch {
		case l.Pod == s.PodUID:
			out[0].Times = max(out[0].Times, l.Times) // it was asked to leave before, and has not
		case any && l.Pod == before.Pod || len(out) == mostLeft:
		default:
			out = append(out, l)
		}
	}
	return out
}

// newest is when the youngest pod was made, and which pods were made in that second. If these are too many it names none, and
// only a pod of a later second counts as later.
func newest(pods []*state.PodView) (at metav1.Time, peers []types.UID) {
	for _, pod := range pods {
		if at.Before(&pod.Created) {
			at, peers = pod.Created, nil
		}
		if at.Equal(&pod.Created) {
			peers = append(peers, pod.UID)
		}
	}
	if len(peers) > mostPeers {
		return metav1.NewTime(at.Add(time.Second)), nil
	}
	return at, peers
}

// note records on McKubes that pods of theirs leave the node because they are late there. It does not overwrite a change that
// the cache does not show yet, as for another node that another of its pods leaves: the write conflicts, and the controller
// looks again.
func (v visit) note(ctx context.Context, list []departure) error {
	for _, d := range list {
		m := d.McKube
		value, err := json.Marshal(d.Left)
		if err != nil {
			return fmt.Errorf("encoding annotation %s: %w", mcv1.AnnotationLeftLate, err)
		}
		next := m.DeepCopy()
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[mcv1.AnnotationLeftLate] = string(value)
		if err := v.Client.Patch(ctx, next, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager)); err != nil {
			return fmt.Errorf("noting on McKube %s/%s which node it leaves: %w", m.Namespace, m.Name, err)
		}
	}
	return nil
}
