package rtruntime_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// A new pod is told of its core when its agent has read the budget back, in one write, and without that a second later.
func TestAPodIsToldOnceOfItsCore(t *testing.T) {
	for name, obeys := range map[string]bool{"obeys": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			o := newCluster(t).office()
			n := o.node("n", 1)
			p := o.bare("p", n.Name, "app")
			before := p.DeepCopy()
			p.Annotations = map[string]string{mcv1.AnnotationPending: "true"} // as the webhook does
			o.must(o.Patch(t.Context(), p, client.MergeFrom(before)))
			o.mckube("m", "p", 20, 40)
			var wait time.Duration
			for range 5 {
				var err error
				wait, err = o.serve("m")
				o.must(err)
				o.lookAndAct(n.Name)
			}
			if spec := o.rtNode(n.Name).Spec; len(spec.Servers) != 1 || wait <= 0 || wait > time.Second {
				t.Errorf("%d containers have cores; looks again after %s", len(spec.Servers), wait)
			}
			told := func() string {
				return o.annotation(p, mcv1.AnnotationCore) + o.annotation(p, mcv1.AnnotationPending) + o.annotation(p, mcv1.AnnotationConfigured)
			}
			if got := told(); got != "true" {
				t.Errorf("the pod is told %s", got)
			}
			want := "0true"
			if obeys {
				status := heartbeat(o.clock.Now())
				status.ObservedGeneration = o.rtNode(n.Name).Generation
				status.Servers = []v1alpha1.RTServerStatus{{PodUID: p.UID, Container: "app", BudgetUs: 20_000, PeriodUs: 100_000, Cores: []int32{0}, Level: "low"}}
				o.agentReports(n.Name, status)
				o.lookAndAct(n.Name)
			} else {
				o.clock.Step(time.Second)
				want = "0"
			}
			_, err := o.serve("m")
			o.must(err)
			if got := told(); got != want {
				t.Errorf("the pod is told %s, want %s", got, want)
			}
		})
	}
}
