package rtruntime

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

const (
	// passing is for how long a state of a McKube that only passes to the next is left unwritten: a pod that comes is in five of them within a second, and each
	// write is a request. So the one is written that there is after a second.
	passing = time.Second
	// counting is that while only counts of overruns and misses differ. A node that overruns says so every two seconds, and a McKube has
	// containers on many nodes.
	counting = 5 * time.Second
)

// pause is for how long a status may be left unwritten: counts after the one before, all else since it differs. What answers its user, what is said of containers that were raised,
// squeezed or evicted, the first overrun, and that all are ready, is written at once: some of it follows from what was written before.
func pause(before, now mcv1.McKubeStatus) time.Duration {
	told := func(c metav1.Condition) bool { return tells(meta.FindStatusCondition(before.Conditions, c.Type), c) }
	overran := before.LastOverrunTime == nil && now.LastOverrunTime != nil
	if before.ObservedGeneration != now.ObservedGeneration || overran || slices.ContainsFunc(now.Conditions, told) {
		return 0
	}
	now.Overruns, now.DeadlineMisses, now.LastOverrunTime = before.Overruns, before.DeadlineMisses, before.LastOverrunTime
	if equality.Semantic.DeepEqual(before, now) {
		return counting
	}
	return passing
}

// tells tells whether the controller writes a condition at once. It can delay which servers are raised or squeezed. It
// cannot delay which pod gives way to which, as what it says of an eviction follows from that.
func tells(before *metav1.Condition, now metav1.Condition) bool {
	switch now.Type {
	case mcv1.ConditionAdmitted, mcv1.ConditionPlaced, mcv1.ConditionConfigured:
		return false
	case mcv1.ConditionReady:
		return now.Status == metav1.ConditionTrue && (before == nil || before.Status != now.Status)
	case mcv1.ConditionPreempted:
		return before == nil || before.Status != now.Status || before.Reason != now.Reason || before.Message != now.Message
	default:
		return before == nil || before.Status != now.Status || before.Reason != now.Reason
	}
}

// pace remembers when the status of each McKube was last written, and since when more than its counts differ from what is. It goes by the controller's
// clock; a controller that knows nothing writes at once.
type pace struct {
	mu             sync.Mutex
	written, other map[types.NamespacedName]time.Time
}

func newPace() *pace {
	return &pace{written: map[types.NamespacedName]time.Time{}, other: map[types.NamespacedName]time.Time{}}
}

// wait is for how long a status is still to be left unwritten. A clock that went backwards begins anew.
func (p *pace) wait(mckube types.NamespacedName, now time.Time, pause time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, known := p.written[mckube]
	if !known {
		return 0
	}
	if pause == counting {
		delete(p.other, mckube)
	} else {
		if _, differs := p.other[mckube]; !differs {
			p.other[mckube] = now
		}
		since = p.other[mckube]
	}
	if now.Before(since) {
		return 0
	}
	return max(0, pause-now.Sub(since))
}

// same notes that a status is as it is written.
func (p *pace) same(mckube types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.other, mckube)
}

func (p *pace) wrote(mckube types.NamespacedName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written[mckube] = now
	delete(p.other, mckube)
}

func (p *pace) forget(mckube types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, mckube)
	delete(p.other, mckube)
}
