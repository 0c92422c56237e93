package engine

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// mostAnswers is how many answers are kept at most; then all are forgotten.
const mostAnswers = 4096

// key is what an answer is for.
type key struct {
	pod                                  types.UID
	source, target, trigger, criticality string
}

func (q Question) key() key { return key{q.UID, q.SourceNode, q.TargetNode, q.Trigger, q.Criticality} }

type dated struct {
	answer Answer
	at     time.Time
}

// answers keeps what was said for a while.
type answers struct {
	lock  sync.Mutex
	known map[key]dated
}

func (a *answers) get(k key, now time.Time) (Answer, bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	d, ok := a.known[k]
	if !ok || now.Sub(d.at) >= keep {
		return Answer{}, false
	}
	d.answer.Cached = true
	return d.answer, true
}

func (a *answers) put(k key, answer Answer, now time.Time) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if len(a.known) >= mostAnswers {
		maps.DeleteFunc(a.known, func(_ key, d dated) bool { return now.Sub(d.at) >= keep })
	}
	if len(a.known) >= mostAnswers {
		clear(a.known)
	}
	a.known[k] = dated{answer, now}
}
