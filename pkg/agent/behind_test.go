package agent_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// An agent that starts may be told of an RTNode that is older than the one whose table is in force. It takes nothing away, unless that stays so.
func TestAnRTNodeThatIsOlderThanWhatIsInForceWaits(t *testing.T) {
	t.Parallel()
	node := func(uid types.UID, generation int64) *v1alpha1.RTNode {
		return &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, Generation: generation}}
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		now     *v1alpha1.RTNode
		has     agent.InForce
		counts  bool
		instead bool // it counts a minute later
	}{
		"older":                      {node("u", 4), agent.Has("u", 5), false, true},
		"the same":                   {node("u", 5), agent.Has("u", 5), true, true},
		"newer":                      {node("u", 6), agent.Has("u", 5), true, true},
		"another of the name":        {node("v", 1), agent.Has("u", 5), true, true},
		"nothing was in force":       {node("u", 1), agent.Has("", 0), true, true},
		"what is in force not known": {node("u", 5), agent.InForce{}, false, false},
	} {
		m := &agent.Memory{}
		for _, look := range []struct {
			at     time.Duration
			counts bool
		}{{0, c.counts}, {59 * time.Second, c.counts}, {time.Minute, c.instead}} {
			if r, known := m.Spec(c.now, at.Add(look.at), c.has); known != look.counts || known && r != c.now {
				t.Errorf("%s, after %s: it counts %v; want %v", name, look.at, known, look.counts)
			}
		}
	}
	// That it was older before says nothing of another time.
	m := &agent.Memory{}
	m.Spec(node("u", 4), at, agent.Has("u", 5))
	m.Spec(node("u", 5), at.Add(10*time.Second), agent.Has("u", 5))
	if _, known := m.Spec(node("u", 5), at.Add(2*time.Minute), agent.Has("u", 6)); known {
		t.Error("it counts at once when it is older again")
	}
}

// What is in force is known by the table's origin, which goes there and comes back.
func TestATableNamesItsRTNode(t *testing.T) {
	t.Parallel()
	r := golden(t, "rtnode.yaml")
	r.UID = "u"
	if got, _ := agent.Build(r, found(r)); got.Origin != "u" || got.Generation != r.Generation {
		t.Errorf("origin %q, generation %d; want those of the RTNode", got.Origin, got.Generation)
	}
}
