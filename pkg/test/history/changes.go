package history

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Changes counts the versions of a kind on record. It reports false for a kind that is not recorded, and while no watch is
// open that would tell of more.
func (r *Recorder) Changes(kind schema.GroupVersionKind) (int, bool) {
	s := r.kinds[kind]
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recorded, s.watching
}

// KindOf returns the kind of an object, or of the items of a list.
func KindOf(c client.Client, o runtime.Object) (schema.GroupVersionKind, error) {
	kind, err := c.GroupVersionKindFor(o)
	if err != nil {
		return kind, fmt.Errorf("finding the kind of %T: %w", o, err)
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return kind, nil
}
