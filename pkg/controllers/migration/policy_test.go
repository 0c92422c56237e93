package migration_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A policy (an admission webhook, a ValidatingAdmissionPolicy) that forbids the eviction ends the migration at once, in its
// words: whoever asked for it tries something else.
func TestAPolicyThatForbidsTheEvictionIsHeeded(t *testing.T) {
	w := newTown(t, 1)
	asked := 0
	w.client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			asked++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "rt-1", errors.New("only on Sundays"))
		},
	})
	action := w.play(nil, w.request("rt-1"))[0]
	if action.Status.Phase != "RolledBack" || !strings.Contains(action.Status.Message, "only on Sundays") {
		t.Errorf("it is %s: %s", action.Status.Phase, action.Status.Message)
	}
	if asked != 1 || w.running() != "rt-1@a" {
		t.Errorf("asked %d times; it leaves %s", asked, w.running())
	}
	if !slices.ContainsFunc(w.told, func(e string) bool { return strings.HasPrefix(e, "MigrationWaits") }) {
		t.Errorf("told %q, and nobody of the policy", w.told)
	}
}
