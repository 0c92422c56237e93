package history

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// Version is one state of one object.
type Version struct {
	// Revision is the resource version of the write, a position in the sequence of all writes.
	Revision uint64
	// Type is Added, Modified or Deleted.
	Type watch.EventType
	// Object is of one of the kinds that a Recorder watches. It is shared: read it, do not change it.
	Object client.Object
	// Inferred says that the version was read from a list and not seen as it was written: versions
	// between the one before and this one may be missing.
	Inferred bool
}

// String names the version for failure messages.
func (v Version) String() string {
	return fmt.Sprintf("revision %d: %s %s %s", v.Revision, kindOf(v.Object), v.Object.GetName(), v.Type)
}

// kindOf names the kind in words; objects from typed watches carry no kind of their own.
func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.Node:
		return "Node"
	case *karpenterv1.NodeClaim:
		return "NodeClaim"
	case *corev1.Pod:
		return "Pod"
	case *corev1.Event:
		return "Event"
	case *mckubev1alpha1.RTNode:
		return "RTNode"
	case *mckubev1alpha1.RTAction:
		return "RTAction"
	case *mcoperatorv1.McKube:
		return "McKube"
	case *resourcev1.ResourceClaim:
		return "ResourceClaim"
	case *resourcev1.ResourceSlice:
		return "ResourceSlice"
	}
	return fmt.Sprintf("%T", o)
}

func newVersion(t watch.EventType, o client.Object, inferred bool) (Version, error) {
	revision, err := parseRevision(o.GetResourceVersion())
	if err != nil {
		return Version{}, fmt.Errorf("reading the resource version of %s %s: %w", kindOf(o), o.GetName(), err)
	}
	return Version{Revision: revision, Type: t, Object: o, Inferred: inferred}, nil
}

func parseRevision(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }

// History is what was written, oldest first. The zero value is empty.
type History struct {
	versions []Version
	from     uint64
}

// Of is a record made of the versions, for tests of what is read from records. All belong to what
// happened since its beginning.
func Of(versions ...Version) History { return newHistory(versions) }

func newHistory(versions []Version) History {
	versions = slices.Clone(versions)
	slices.SortStableFunc(versions, func(a, b Version) int { return cmp.Compare(a.Revision, b.Revision) })
	return History{versions: versions}
}

// Since returns the part of the history that begins with the state at revision.
func (h History) Since(revision uint64) History {
	h.from = max(h.from, revision)
	return h
}

// Versions returns what was written after the beginning of the history.
func (h History) Versions() []Version {
	i, _ := slices.BinarySearchFunc(h.versions, h.from+1, func(v Version, r uint64) int { return cmp.Compare(v.Revision, r) })
	return h.versions[i:]
}

// Events returns what was said about the object named name under reason, oldest first. An empty
// name or reason matches all.
func (h History) Events(reason, name string) []*corev1.Event {
	var list []*corev1.Event
	for _, v := range h.Versions() {
		event, ok := v.Object.(*corev1.Event)
		if !ok || v.Type == watch.Deleted {
			continue
		}
		if (reason == "" || event.Reason == reason) && (name == "" || event.InvolvedObject.Name == name) {
			list = append(list, event)
		}
	}
	return list
}
