package rtruntime

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// passing is how often a McKube's status is written while it only passes from one state to the next: a pod that comes is in five of them
// within a second, and each write is a request.
const passing = time.Second

// passes tells whether a status may be left unwritten for a while. What answers its user, what is said of containers that were raised,
// squeezed or evicted, when one overran, and that all are ready, is written at once: some of it follows from what was written before.
func passes(before, now mcv1.McKubeStatus) bool {
	return before.ObservedGeneration == now.ObservedGeneration && before.LastOverrunTime.Equal(now.LastOverrunTime) &&
		!slices.ContainsFunc(now.Conditions, func(c metav1.Condition) bool {
			was := meta.FindStatusCondition(before.Conditions, c.Type)
			switch c.Type {
			case mcv1.ConditionAdmitted, mcv1.ConditionPlaced, mcv1.ConditionConfigured:
				return false
			case mcv1.ConditionReady:
				return c.Status == metav1.ConditionTrue && (was == nil || was.Status != c.Status)
			}
			return was == nil || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message
		})
}

// pace remembers when the status of each McKube was last written. It goes by the controller's clock; who knows nothing writes at once.
type pace struct {
	mu      sync.Mutex
	written map[types.NamespacedName]time.Time
}

func newPace() *pace { return &pace{written: map[types.NamespacedName]time.Time{}} }

// wait is for how long a passing state is to be left unwritten. A clock that went backwards begins anew.
func (p *pace) wait(mckube types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.written[mckube]
	if !known || now.Before(last) {
		return 0
	}
	return max(0, passing-now.Sub(last))
}

func (p *pace) wrote(mckube types.NamespacedName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written[mckube] = now
}

func (p *pace) forget(mckube types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, mckube)
}
