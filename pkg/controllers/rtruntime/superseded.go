package rtruntime

import (
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errBehind is why nothing is written to a version that this process has written over itself.
var errBehind = errors.New("the cache does not show yet what was written last")

// superseded remembers the versions that this process has written over. A cache that shows one of them is behind, and the API server
// would refuse what is written to it: that request is spared. Losing it costs one.
type superseded struct {
	// version of an object, which each write makes a new one of that counts here.
	version func(client.Object) string

	mu       sync.Mutex
	versions map[types.NamespacedName]string
}

func newSuperseded(version func(client.Object) string) *superseded {
	return &superseded{version: version, versions: map[types.NamespacedName]string{}}
}

// resourceVersion differs after any write, generation after one of the spec.
func resourceVersion(o client.Object) string { return o.GetResourceVersion() }
func generation(o client.Object) string {
	return fmt.Sprintf("%s/%d", o.GetUID(), o.GetGeneration())
}

// check is a conflict, as the API server would find, if the object is a version that was written over.
func (s *superseded) check(o client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version := s.versions[client.ObjectKeyFromObject(o)]; version == "" || version != s.version(o) {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errBehind)
}

// wrote notes that was has become is. A write that changes nothing makes no new version.
func (s *superseded) wrote(was, is client.Object) {
	if s.version(was) == s.version(is) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[client.ObjectKeyFromObject(is)] = s.version(was)
}

func (s *superseded) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.versions, key)
}
