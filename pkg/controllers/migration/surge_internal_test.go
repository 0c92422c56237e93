package migration

import (
	"context"
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// The eviction of a Job's pod waits for that of another, whichever of the loops that share the Dependencies does that, for no longer
// than its step has.
func TestAnEvictionThatWaitsForAnother(t *testing.T) {
	shared := Dependencies{Evicting: make(chan struct{}, 1)}
	m, other := newMigrate(shared), newMigrate(shared)
	other.Evicting <- struct{}{} // another one, which the API server keeps waiting
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{Kind: "Job", APIVersion: batchv1.SchemeGroupVersion.String(), Name: "once", Controller: ptr.To(true)},
	}}}
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan error, 1)
	go func() {
		_, err := m.ask(ctx, orchestration.Task{}, pod)
		said <- err
	}()
	cancel()
	select {
	case err := <-said:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it still waits")
	}
}
