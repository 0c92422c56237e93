package disruption

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// desk is where the loop and the executor of ReplaceNode meet. Nothing on it need survive the process: the
// actions do, and what is done to nodes shows on them.
type desk struct {
	mutex sync.Mutex
	// orders are the actions that are to be done in the pass under way, by their nodes.
	orders map[string]*v1alpha1.RTAction
	// notes are what was found of actions, by their names.
	notes map[string]note
	// handed are the actions whose commands the loop is about to start.
	handed map[string]bool
	// started are those whose commands this process has started.
	started map[string]bool
	// off are those that were called off.
	off map[string]bool
	// failures counts commands that could not be started.
	failures map[string]int
}

// note is what was found of an action.
type note struct {
	// impossible: it cannot be done. Otherwise it waits.
	impossible bool
	message    string
	// fresh: it was found in the pass under way.
	fresh bool
}

// failuresMost is how often the start of a command may fail.
const failuresMost = 3

func newDesk() *desk {
	return &desk{
		orders: map[string]*v1alpha1.RTAction{}, notes: map[string]note{}, handed: map[string]bool{}, started: map[string]bool{},
		off: map[string]bool{}, failures: map[string]int{},
	}
}

// open begins a pass with the actions that hold their nodes, and forgets all others.
func (d *desk) open(actions []*v1alpha1.RTAction) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	names := map[string]bool{}
	clear(d.orders)
	for _, a := range actions {
		names[a.Name] = true
		if a.Status.Phase == phaseRunning && a.Status.Progress[progressNodeUID] != "" {
			d.orders[a.Spec.Node] = a
		}
	}
	maps.DeleteFunc(d.notes, func(name string, _ note) bool { return !names[name] })
	maps.DeleteFunc(d.failures, func(name string, _ int) bool { return !names[name] })
	for _, set := range []map[string]bool{d.started, d.off} {
		maps.DeleteFunc(set, func(name string, _ bool) bool { return !names[name] })
	}
	for name, n := range d.notes {
		n.fresh = false
		d.notes[name] = n
	}
}

// order is what is to be done to a node: nil, if nothing is, or if another node had the name when it was asked for.
func (d *desk) order(node string, uid types.UID) *v1alpha1.RTAction {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	a := d.orders[node]
	if a == nil || a.Status.Progress[progressNodeUID] != string(uid) || d.off[a.Name] {
		return nil
	}
	return a
}

// write says what was found of an action.
func (d *desk) write(action string, n note) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	n.fresh = true
	d.notes[action] = n
}

// read is what was last found of an action, and whether this process has started a command for it.
func (d *desk) read(action string) (n note, started bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.notes[action], d.started[action]
}

// hand gives the command for an action to the loop, unless it was called off meanwhile.
func (d *desk) hand(action string) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.off[action] {
		return false
	}
	d.handed[action] = true
	return true
}

// callOff keeps a command for the action from being started. It is false while the loop is starting one.
func (d *desk) callOff(action string) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.off[action] = true
	return !d.handed[action]
}

// settle ends a pass: of the actions that were handed over, those for which under is true are under way. why says what
// kept the others from that. It returns the actions of which nothing was found in the pass.
func (d *desk) settle(under func(node string) bool, why string) (silent []*v1alpha1.RTAction) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, node := range slices.Sorted(maps.Keys(d.orders)) {
		a := d.orders[node]
		switch {
		case !d.handed[a.Name]:
			if !d.notes[a.Name].fresh {
				silent = append(silent, a)
			}
		case under(node):
			d.started[a.Name] = true
			d.notes[a.Name] = note{message: "its replacement is under way", fresh: true}
		default:
			d.failures[a.Name]++
			d.notes[a.Name] = note{impossible: d.failures[a.Name] >= failuresMost, message: "the replacement could not be begun: " + why, fresh: true}
		}
	}
	clear(d.handed)
	return silent
}
