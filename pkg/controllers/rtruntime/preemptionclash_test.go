package rtruntime_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// Nobody is evicted for a pod that cannot run on the node whoever goes: one that stays has its host port, or is not to be
// beside it.
func TestNobodyGoesWhereAnotherKeepsItOff(t *testing.T) {
	for name, constrain := range map[string]func(high, fixed *corev1.Pod){
		"hostport": func(high, fixed *corev1.Pod) {
			for _, p := range []*corev1.Pod{high, fixed} {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
			}
		},
		"affinity": func(high, fixed *corev1.Pod) {
			fixed.Labels = map[string]string{"app": "fixed"}
			high.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "fixed"}},
			}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSiege(t, "clash-"+name)
			s.node("a", 1)
			s.run("low", "a", "Low", 80, 0)
			s.mckube("high", mcv1.CriticalityHigh, 80)
			high := s.shape("high")
			fixed := statetest.On(statetest.Pod(s.namespace, "fixed", "", "app"), s.namespace+"-a")
			fixed.Spec.Containers[0].Image = "none"
			constrain(high, fixed)
			status := fixed.Status
			s.must(s.API.Create(t.Context(), fixed))
			fixed.Status = status
			s.must(s.API.Status().Update(t.Context(), fixed))
			s.must(s.API.Create(t.Context(), high))
			unschedulable(high, s.clock.Now().Add(-10*time.Second))
			s.must(s.API.Status().Update(t.Context(), high))
			b := s.start(preempting)
			for range 12 {
				b.look()
				_ = b.turn()
				b.act("high")
				s.clock.Step(500 * time.Millisecond)
			}
			if len(s.evicted) > 0 {
				t.Errorf("evicted %v for a pod that cannot run there in any case", s.evicted)
			}
		})
	}
}
