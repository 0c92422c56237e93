package ladder_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// wander keeps a container late on two nodes for a while, in as many processes as that takes, and then no longer, until all is
// over.
func (s *stage) wander(p *process) {
	s.Helper()
	const late, most = 20, 120
	for turn := range most {
		if turn < late {
			s.misses["sick"] += 3
		}
		s.live()
		p.turn()
		if p.dead {
			p = s.spawn()
		}
		s.clock.Step(tick)
		if a, b := s.pressure("a"), s.pressure("b"); turn > late && a == "Ended" && b == "Ended" {
			return
		}
	}
	s.Errorf("it does not end: %q and %q, %q", s.pressure("a"), s.pressure("b"), s.actions())
}

// wandered is the required course: the container was moved once, which is recorded once, and its McKube says which pod the pod
// on the other node replaces.
func (s *stage) wandered(pod types.UID) {
	s.Helper()
	expectLines(s, "what was done", s.done, "sick to node b")
	expectLines(s, "actions", s.actions(), "Migrate RTPressure Succeeded sick")
	var noted []struct {
		Pod, Node types.UID
		Times     int
	}
	s.must(json.Unmarshal([]byte(s.mckube("sick").Annotations[mcv1.AnnotationLeftLate]), &noted))
	if len(noted) != 1 || noted[0].Pod != pod || noted[0].Node != s.uid("a") || noted[0].Times != 1 {
		s.Errorf("noted is %+v, want once pod %s of node %s", noted, pod, s.uid("a"))
	}
	unanswered := slices.IndexFunc(s.told.list, func(e karpenterevents.Event) bool {
		return e.Reason == "PressureUnanswered" && strings.Contains(e.Message, "is late here, too")
	})
	if unanswered < 0 {
		s.Error("nobody is told that it is late on the other node, too")
	}
}

func (s *stage) uid(node string) types.UID {
	s.Helper()
	n := &corev1.Node{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Name: s.namespace + "-" + node}, n))
	return n.UID
}

// A process dies before a write, or does not learn of it, while a pod leaves a node for being late there. The record of that on
// the McKube is one of these writes. A pod that was late on two nodes is moved once, and not again by a process that knows only
// the API.
func TestRecordOfDepartureSurvivesEachProcess(t *testing.T) {
	begin := func(t *testing.T) (*stage, types.UID) {
		s := newStage(t)
		s.node("a", 1)
		s.node("b", 1)
		s.sick("a")
		pod := &corev1.Pod{}
		s.must(s.api.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "sick"}, pod))
		return s, pod.UID
	}
	points, noted := 0, 0
	t.Run("undisturbed", func(t *testing.T) {
		s, pod := begin(t)
		p := s.spawn()
		s.wander(p)
		s.wandered(pod)
		if len(s.notes) != 1 || p.points < 15 {
			t.Fatalf("%d points, of which %v are notes: this tests next to nothing", p.points, s.notes)
		}
		points, noted = p.points, s.notes[0]
	})
	for _, losesReply := range []bool{false, true} {
		t.Run(fmt.Sprintf("loses reply %t", losesReply), func(t *testing.T) {
			at := append(sampling.Points(t, 1, points, deathsPerPlay-1), noted) // the record is the subject of this test
			slices.Sort(at)
			for _, at := range slices.Compact(at) {
				t.Run(fmt.Sprintf("at %d", at), func(t *testing.T) {
					s, pod := begin(t)
					p := s.spawn()
					p.at, p.losesReply = at, losesReply
					s.wander(p)
					s.wandered(pod)
				})
			}
		})
	}
}
