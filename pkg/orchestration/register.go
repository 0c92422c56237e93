package orchestration

import (
	"maps"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// register has actions, which are never changed in it, only replaced, and finds them without going through all.
// It is not safe for concurrent use.
type register struct {
	objects map[string]*v1alpha1.RTAction
	// names in order.
	names []string
	// attempts are the names by what they are attempts at, causes by why, kinds and holders those that hold what they use
	// by what they do and by what that is. waits are those that wait, and expired those that did until they expired, by what for.
	attempts, causes, waits, expired sets[string]
	kinds                            sets[v1alpha1.ActionKind]
	holders                          sets[rules.Key]
}

func newRegister() *register {
	return &register{
		objects: map[string]*v1alpha1.RTAction{}, attempts: sets[string]{}, causes: sets[string]{}, waits: sets[string]{}, expired: sets[string]{},
		kinds: sets[v1alpha1.ActionKind]{}, holders: sets[rules.Key]{},
	}
}

// put takes an action in, in place of what was known of it.
func (r *register) put(o *v1alpha1.RTAction) {
	if old, ok := r.objects[o.Name]; ok {
		r.unlink(old)
	} else {
		at, _ := slices.BinarySearch(r.names, o.Name)
		r.names = slices.Insert(r.names, at, o.Name)
	}
	r.objects[o.Name] = o
	r.attempts.add(o.Labels[v1alpha1.LabelActionKey], o.Name)
	r.causes.add(o.Spec.Cause, o.Name)
	switch phaseOf(o) {
	case rules.Waiting:
		r.waits.add(o.Status.WaitingFor, o.Name)
	case rules.Expired:
		r.expired.add(o.Status.WaitingFor, o.Name)
	}
	if phaseOf(o).Holds() {
		r.kinds.add(o.Spec.Kind, o.Name)
		for _, u := range record.Uses(o.Spec) {
			r.holders.add(u.Key, o.Name)
		}
	}
}

// remove returns what was known of an action.
func (r *register) remove(name string) (*v1alpha1.RTAction, bool) {
	o, ok := r.objects[name]
	if !ok {
		return nil, false
	}
	r.unlink(o)
	delete(r.objects, name)
	if at, found := slices.BinarySearch(r.names, name); found {
		r.names = slices.Delete(r.names, at, at+1)
	}
	return o, true
}

func (r *register) unlink(o *v1alpha1.RTAction) {
	r.attempts.remove(o.Labels[v1alpha1.LabelActionKey], o.Name)
	r.causes.remove(o.Spec.Cause, o.Name)
	switch phaseOf(o) {
	case rules.Waiting:
		r.waits.remove(o.Status.WaitingFor, o.Name)
	case rules.Expired:
		r.expired.remove(o.Status.WaitingFor, o.Name)
	}
	if phaseOf(o).Holds() {
		r.kinds.remove(o.Spec.Kind, o.Name)
		for _, u := range record.Uses(o.Spec) {
			r.holders.remove(u.Key, o.Name)
		}
	}
}

// all actions, by name.
func (r *register) all() []*v1alpha1.RTAction { return r.list(r.names) }

// list the actions of these names.
func (r *register) list(names []string) []*v1alpha1.RTAction {
	out := make([]*v1alpha1.RTAction, 0, len(names))
	for _, name := range names {
		out = append(out, r.objects[name])
	}
	return out
}

// sets are names by what they have in common.
type sets[K comparable] map[K]map[string]struct{}

func (s sets[K]) add(k K, name string) {
	if s[k] == nil {
		s[k] = map[string]struct{}{}
	}
	s[k][name] = struct{}{}
}

func (s sets[K]) remove(k K, name string) {
	delete(s[k], name)
	if len(s[k]) == 0 {
		delete(s, k)
	}
}

// of lists the names, in order.
func (s sets[K]) of(k K) []string { return slices.Sorted(maps.Keys(s[k])) }

// first of the names; empty: there is none.
func (s sets[K]) first(k K) string {
	least := ""
	for name := range s[k] {
		if least == "" || name < least {
			least = name
		}
	}
	return least
}
