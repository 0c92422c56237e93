package rtruntime_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// Whatever is in the annotation, a reported overrun is news unless a later one is known, and is there afterwards, alone for its server.
func FuzzAsked(f *testing.F) {
	for _, annotation := range []string{
		"", "null", "{}", "[]", `{"a/app":{"timestamp":7,"at":"2026-01-01T00:00:00Z"},"b/app":{"timestamp":9}}`, `{"a/app":null}`, `{"a/app":{"timestamp":8}}`, `{"a/app":7}`,
	} {
		f.Add(annotation)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		const timestamp = 7
		r := &v1alpha1.RTNode{}
		r.Annotations = map[string]string{v1alpha1.AnnotationAsked: annotation}
		r.Spec.Servers = []v1alpha1.RTServer{{PodUID: "a", Container: "app"}}
		id := rtdra.ServerID("a", "app")
		known := rtruntime.AskedOn(r)[id].Timestamp
		next, news, err := rtruntime.Ask(r, id, timestamp, start)
		if err != nil || news != (known < timestamp) {
			t.Fatalf("news %t, %v; %d is known", news, err, known)
		}
		if !news {
			return
		}
		r.Annotations[v1alpha1.AnnotationAsked] = next
		if got := rtruntime.AskedOn(r); len(got) != 1 || got[id].Timestamp != timestamp || !got[id].At.Equal(start) {
			t.Fatalf("%q is read as %v", next, got)
		}
	})
}
