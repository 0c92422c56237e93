package ladder

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// lateAgain is how long a container that was taken from a node because it missed its deadlines there is not taken from
// another one for that. It doubles each time.
const lateAgain = 10 * time.Minute

// left is from which node containers of a McKube were taken last because they missed their deadlines. It is kept on the
// McKube: the pods that take their places, by whomever they are made, are governed by it, too.
type left struct {
	Node types.UID `json:"node"`
	At   time.Time `json:"at"`
	// Times that this has happened, one soon after the other.
	Times int `json:"times"`
}

// leftBy reads it. What cannot be read says nothing.
func leftBy(m *mcv1.McKube) left {
	var out left
	if json.Unmarshal([]byte(m.Annotations[mcv1.AnnotationLeftLate]), &out) != nil {
		return left{}
	}
	return out
}

func (l left) rest() time.Duration { return lateAgain << min(max(l.Times-1, 0), mostRelapses) }

// elsewhere tells whether another node was left not long ago: then it is not this one that is wrong.
func (l left) elsewhere(node types.UID, now time.Time) bool {
	return l.Node != "" && l.Node != node && now.Before(l.At.Add(l.rest()))
}

// again is what to keep when a node is left now.
func (l left) again(node types.UID, now time.Time) left {
	next := left{Node: node, At: now.UTC().Truncate(time.Second), Times: 1}
	switch {
	case l.Node == node:
		next.Times = max(l.Times, 1)
	case l.Node != "" && now.Before(l.At.Add(2*l.rest())):
		next.Times = l.Times + 1
	}
	return next
}

// wandering tells whether a container misses its deadlines here as it did where it was before.
func (p *planner) wandering(s Sufferer) bool {
	return s.Source == SourceMisses && leftBy(s.McKube).elsewhere(p.Node.UID, p.Now)
}

// wanderers say so in words.
func (p *planner) wanderers() []string {
	var out []string
	for _, s := range p.Sufferers {
		if p.wandering(s) {
			l := leftBy(s.McKube)
			out = append(out, fmt.Sprintf("%s was taken from another node at %s because it was late there, and is late here, too; it stays until %s",
				s.Where(), l.At.Format(time.RFC3339), l.At.Add(l.rest()).Format(time.RFC3339)))
		}
	}
	return out
}

// leaving are the McKubes of those who leave the node by an action because they are late: they and no others may be moved
// for it again only after a rest.
func (p *planner) leaving(o option) []*mcv1.McKube {
	var out []*mcv1.McKube
	for _, s := range p.Sufferers {
		if s.Source == SourceMisses && slices.Contains(o.leavers, s.PodUID) && !slices.Contains(out, s.McKube) {
			out = append(out, s.McKube)
		}
	}
	return out
}

// note keeps on McKubes that containers of theirs leave the node because they are late there.
func (v visit) note(ctx context.Context, list []*mcv1.McKube) error {
	for _, m := range list {
		value, err := json.Marshal(leftBy(m).again(v.node.UID, v.scene.Now))
		if err != nil {
			return fmt.Errorf("encoding annotation %s: %w", mcv1.AnnotationLeftLate, err)
		}
		next := m.DeepCopy()
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[mcv1.AnnotationLeftLate] = string(value)
		if err := v.Client.Patch(ctx, next, client.MergeFrom(m), client.FieldOwner(FieldManager)); err != nil {
			return fmt.Errorf("noting on McKube %s/%s which node it leaves: %w", m.Namespace, m.Name, err)
		}
	}
	return nil
}
