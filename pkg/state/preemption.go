package state

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Preemption is the plan by which room is made for a pending pod: the value, in JSON, of its annotation
// mckube.io/preempting. It is written before the first eviction, so that another controller can go on.
type Preemption struct {
	// Node and Core are where the room is made.
	Node string `json:"node"`
	Core int    `json:"core"`
	// Further are the cores of the pod's further governed containers, by name of the container.
	Further []int `json:"further,omitempty"`
	// Victims are the UIDs of the pods to evict.
	Victims []types.UID `json:"victims"`
	// Deadline is when it ends, whatever has been reached.
	Deadline metav1.Time `json:"deadline"`
	// Life is how long it may take in all.
	Life metav1.Duration `json:"life"`
	// Waits says, in words, why victims may not be evicted yet; empty when nothing is in the way.
	Waits string `json:"waits,omitempty"`
}

// Cores are all the cores where room is made.
func (p Preemption) Cores() []int { return append([]int{p.Core}, p.Further...) }

// Encode is the annotation's value.
func (p Preemption) Encode() (string, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encoding preemption: %w", err)
	}
	return string(text), nil
}

// Bounds of a plan. The chart's admission policy lets only the controller write one. Where the policy is not installed, a plan that another
// user wrote does no more than one of the controller's own.
const (
	// MaxPreemptionLife is how long a plan may take, and how far ahead its deadline may be.
	MaxPreemptionLife = time.Hour
	maxPreemptionText = 32 << 10
	maxVictims        = 256
)

// ParsePreemption reads the annotation's value. It refuses a plan beyond the bounds.
func ParsePreemption(text string) (Preemption, error) {
	if len(text) > maxPreemptionText {
		return Preemption{}, fmt.Errorf("reading annotation %s: it has %d bytes; want at most %d", mcv1.AnnotationPreempting, len(text), maxPreemptionText)
	}
	var p Preemption
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Preemption{}, fmt.Errorf("reading annotation %s: %w", mcv1.AnnotationPreempting, err)
	}
	if life := p.Life.Duration; life < 0 || life > MaxPreemptionLife {
		return Preemption{}, fmt.Errorf("reading annotation %s: life is %s; want at most %s", mcv1.AnnotationPreempting, life, MaxPreemptionLife)
	}
	if len(p.Victims) > maxVictims || len(p.Further) > maxVictims {
		return Preemption{}, fmt.Errorf("reading annotation %s: it has %d victims and %d further cores; want at most %d of each", mcv1.AnnotationPreempting, len(p.Victims), len(p.Further), maxVictims)
	}
	return p, nil
}

// InForce reports whether the plan's time has not ended. The controller did not write a deadline that is further away than a
// plan's whole life.
func (p Preemption) InForce(now time.Time) bool {
	return now.Before(p.Deadline.Time) && p.Deadline.Sub(now) <= MaxPreemptionLife
}

// Preempting is a pod for which room is being made.
type Preempting struct {
	Pod *PodView
	// Criticality is the highest of its governed containers.
	Criticality rt.Criticality
	Preemption
}

// Preemptions lists the pods for which room is being made and that have no node yet. Whether a
// deadline has passed is for the caller's clock to say.
func (s *Snapshot) Preemptions() []Preempting {
	var out []Preempting
	for uid := range s.preempting.all() {
		pod, ok := s.Pod(types.UID(uid.first))
		if !ok || pod.NodeName != "" || pod.Finished() || pod.Deleting {
			continue
		}
		p := Preempting{Pod: pod, Preemption: *pod.Preempting}
		for _, g := range pod.Governed {
			if g.Err == nil {
				p.Criticality = max(p.Criticality, g.Server.Criticality)
			}
		}
		out = append(out, p)
	}
	return out
}
