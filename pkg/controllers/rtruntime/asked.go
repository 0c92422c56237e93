package rtruntime

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// asked is an overrun of a container that some program reported to the controller. It asks for the high
// budget until the container's recovery delay is over. It is kept in an annotation of the RTNode, so that
// another leader knows it, and repeated reports are known for what they are.
type asked struct {
	// Timestamp of the overrun, by a clock of the reporter's.
	Timestamp uint64 `json:"timestamp"`
	// At is when the controller was told.
	At time.Time `json:"at"`
}

// maxAsked bounds the annotation.
const maxAsked = 256

// left is for how long it asks still. The delay bounds it, whatever the annotation says.
func (a asked) left(delay time.Duration, now time.Time) time.Duration {
	if left := delay - now.Sub(a.At); !a.At.IsZero() && left <= delay {
		return max(left, 0)
	}
	return 0
}

// asks says that an overrun of the container was reported, and that its time is not over.
func (c *candidate) asks(now time.Time) bool {
	return c.asked.left(recoveryDelay(c.view.McKube), now) > 0
}

// askedOn are the overruns that were reported for servers of a node, by ID. An annotation that cannot be
// read asks for nothing.
func askedOn(r *v1alpha1.RTNode) map[string]asked {
	out := map[string]asked{}
	if r == nil || r.Annotations[v1alpha1.AnnotationAsked] == "" {
		return out
	}
	if err := json.Unmarshal([]byte(r.Annotations[v1alpha1.AnnotationAsked]), &out); err != nil || out == nil { // null
		return map[string]asked{}
	}
	return out
}

// ask adds an overrun to those of an RTNode. It tells whether that was news: one that is not later than what is
// known is a repetition. Servers that have left the spec are forgotten, and beyond maxAsked those that asked
// longest ago.
func ask(r *v1alpha1.RTNode, id string, a asked) (annotation string, news bool, err error) {
	all := askedOn(r)
	if known, ok := all[id]; ok && a.Timestamp <= known.Timestamp {
		return "", false, nil
	}
	wanted := map[string]bool{id: true}
	for _, s := range r.Spec.Servers {
		wanted[rtdra.ServerID(s.PodUID, s.Container)] = true
	}
	maps.DeleteFunc(all, func(id string, _ asked) bool { return !wanted[id] })
	all[id] = a
	for _, oldest := range slices.SortedFunc(maps.Keys(all), func(x, y string) int {
		return cmp.Or(all[x].At.Compare(all[y].At), cmp.Compare(x, y))
	}) {
		if len(all) > maxAsked {
			delete(all, oldest)
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return "", false, fmt.Errorf("encoding annotation %s: %w", v1alpha1.AnnotationAsked, err)
	}
	return string(data), true, nil
}
