package replay

import (
	"container/heap"
	"sync"
	"time"
)

// task is one thing to do to a job's Pod.
type task struct {
	at     time.Time
	job    int
	finish bool // delete the Pod, else create it
}

// agenda is tasks in the order of their time; tasks may be added while others are taken.
type agenda struct {
	mu    sync.Mutex
	tasks taskHeap
	// added has room for one signal, so that adding never blocks.
	added chan struct{}
}

func newAgenda() *agenda { return &agenda{added: make(chan struct{}, 1)} }

func (a *agenda) add(t task) {
	a.mu.Lock()
	heap.Push(&a.tasks, t)
	a.mu.Unlock()
	select {
	case a.added <- struct{}{}:
	default:
	}
}

// due takes the next task when its time has come; otherwise it tells how long that takes, at most longest.
func (a *agenda) due(now time.Time, longest time.Duration) (t task, ok bool, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tasks) == 0 {
		return task{}, false, longest
	}
	if wait := a.tasks[0].at.Sub(now); wait > 0 {
		return task{}, false, min(wait, longest)
	}
	t, _ = heap.Pop(&a.tasks).(task)
	return t, true, 0
}

type taskHeap []task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h taskHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *taskHeap) Push(x any)        { *h = append(*h, x.(task)) }
func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	return t
}
