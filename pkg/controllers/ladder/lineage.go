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

// lateAgain is how long a container that was taken from a node because it missed its deadlines there is not taken from
// another one for that. It doubles each time.
const lateAgain = 10 * time.Minute

const (
	// mostLeft is how many pods a McKube remembers, and mostPeers how many of one age are told from their heirs.
	mostLeft  = 64
	mostPeers = 16
)

// left is a pod that left its node because it missed its deadlines there. It is written before the action is asked for, on the McKube:
// the pod in its place, by whomever it is made, is governed by it, too. Where the action comes to nothing the pod is still there, and
// has no heir to whom this would apply.
type left struct {
	Pod  types.UID `json:"pod"`
	Node types.UID `json:"node"`
	At   time.Time `json:"at"`
	// Times that this has happened, one soon after the other, to this pod and those in whose place it was.
	Times int `json:"times"`
	// Newest is when the youngest pod of the McKube was made by then, and Peers are those made in that second: who is younger may be in
	// its place. It is the API server's time.
	Newest metav1.Time `json:"newest"`
	Peers  []types.UID `json:"peers,omitempty"`
}

// departure is what is to be kept on a McKube when pods of it leave.
type departure struct {
	McKube *mcv1.McKube
	Left   []left
}

// leftBy reads it, the latest first. What cannot be read says nothing.
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

// elsewhere tells whether another node was left not long ago: then it is not this one that is wrong.
func (l left) elsewhere(node types.UID, now time.Time) bool {
	return l.Node != node && now.Before(l.At.Add(l.rest()))
}

// heir tells whether a pod was made after that one left.
func (l left) heir(pod *state.PodView) bool {
	return l.Newest.Before(&pod.Created) || l.Newest.Equal(&pod.Created) && !slices.Contains(l.Peers, pod.UID)
}

// ancestor is the pod in whose place that of a container is, if it left its node because it was late. Migrations write down whose place
// it is. A pod made otherwise takes the place of one that has gone and that nobody is known to replace.
func (p *planner) ancestor(s *state.ServerView) (left, bool) {
	own, ok := p.Snapshot.Pod(s.PodUID)
	if !ok {
		return left{}, false
	}
	if own.Replaces == "" {
		l, ok := p.heirs(s.McKube)[own.UID]
		return l, ok
	}
	for _, l := range leftBy(s.McKube) {
		if l.Pod == own.Replaces && l.Pod != own.UID {
			return l, true
		}
	}
	return left{}, false
}

// heirs are the pods that take the place of those that have gone and that nobody is known to replace: of each, from the one that went first,
// the oldest that was made after it. A pod has one heir, however many are made later.
func (p *planner) heirs(m *mcv1.McKube) map[types.UID]left {
	out, pods := map[types.UID]left{}, slices.Clone(p.Snapshot.PodsFor(m))
	slices.SortFunc(pods, func(a, b *state.PodView) int {
		return cmp.Or(a.Created.Compare(b.Created.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, l := range slices.Backward(leftBy(m)) {
		at := slices.IndexFunc(pods, func(pod *state.PodView) bool {
			_, taken := out[pod.UID]
			return !taken && pod.Replaces == "" && pod.UID != l.Pod && l.heir(pod)
		})
		if at >= 0 && p.vacant(m, l.Pod) {
			out[pods[at].UID] = l
		}
	}
	return out
}

// vacant tells whether a pod has gone, or is about to, and nobody is known to be in its place.
func (p *planner) vacant(m *mcv1.McKube, uid types.UID) bool {
	if view, ok := p.Snapshot.Pod(uid); ok && !view.Deleting {
		return false
	}
	return !slices.ContainsFunc(p.Snapshot.PodsFor(m), func(o *state.PodView) bool { return o.Replaces == uid })
}

// byNode tells whether somebody suffers from what may be its node's fault, not its neighbours'.
func (p *planner) byNode(s Sufferer) bool { return s.Source == SourceMisses || p.refused(s) }

// wandering tells whether a container misses its deadlines here, or is refused its budget, as it was where it was before.
func (p *planner) wandering(s Sufferer) bool {
	if !p.byNode(s) {
		return false
	}
	l, ok := p.ancestor(s.ServerView)
	return ok && l.elsewhere(p.Node.UID, p.Now)
}

// wanderers say so in words.
func (p *planner) wanderers() []string {
	var out []string
	for _, s := range p.Sufferers {
		if p.wandering(s) {
			l, _ := p.ancestor(s.ServerView)
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

// leaving is who leaves the node by an action because it is late: the pods in their places and no others may be moved for it again only
// after a rest.
func (p *planner) leaving(o option) []departure {
	var out []departure
	for _, s := range p.Sufferers {
		if !p.byNode(s) || !slices.Contains(o.leavers, s.PodUID) {
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

// with adds a pod that leaves now, which stands for those in whose place it was.
func (p *planner) with(list []left, s *state.ServerView) []left {
	next := left{Pod: s.PodUID, Node: p.Node.UID, At: p.Now.UTC().Truncate(time.Second), Times: 1}
	next.Newest, next.Peers = newest(p.Snapshot.PodsFor(s.McKube))
	before, any := p.ancestor(s)
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

// newest is when the youngest of pods was made, and which were in that second. Of too many none is named, and only a later second is later.
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

// note keeps on McKubes that pods of theirs leave the node because they are late there. What a McKube has that was not seen yet, of another
// node that another of its pods leaves, is not written over: it is looked at again.
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
