package orchestration_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// However many actions there are, what was done for a cause is known for as long as it goes on: or it would be done again. Of the others the oldest go.
func TestWhatWasDoneIsKnownWhileItsCauseGoesOn(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	q, err := orchestration.New(orchestration.Dependencies{Clock: clock, Lease: client.ObjectKey{Namespace: "x", Name: "queue"}, Identity: "process"})
	if err != nil {
		t.Fatal(err)
	}
	const pressures, each = 60, 10
	for i := range pressures * each {
		o := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("a-%03d", i)}}
		o.Spec.Cause = fmt.Sprintf("pressure/%d", i%pressures)
		o.Status.Phase, o.Status.PhaseTime = "Succeeded", ptr.To(metav1.NewMicroTime(clock.Now()))
		orchestration.Know(q, o)
	}
	for i := range pressures {
		orchestration.Ask(q, fmt.Sprintf("pressure/%d", i))
	}
	if got := orchestration.Disposable(q); len(got) > 0 {
		t.Errorf("%d are forgotten while their pressures go on", len(got))
	}
	clock.Step(time.Minute)
	for i := range pressures / 2 {
		orchestration.Ask(q, fmt.Sprintf("pressure/%d", i))
	}
	clock.Step(90 * time.Second)
	got := orchestration.Disposable(q)
	if len(got) != pressures*each-orchestration.Kept {
		t.Errorf("%d are forgotten, want what is beyond %d", len(got), orchestration.Kept)
	}
	for _, o := range got {
		var pressure int
		if _, err := fmt.Sscanf(o.Spec.Cause, "pressure/%d", &pressure); err != nil || pressure < pressures/2 {
			t.Errorf("%s of %s is forgotten, which goes on", o.Name, o.Spec.Cause)
		}
	}
}
