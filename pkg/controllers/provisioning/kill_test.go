package provisioning_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// strikesPerFate is at how many of its writes, chosen at random, each fate befalls the process in each test of a run of `make test`. An
// action has some ten writes, and takes a second.
const strikesPerFate = 2

// whateverDies plays without a death, which tells how many writes there are, and then has each fate befall the process at them.
func whateverDies(t *testing.T, play func(t *testing.T, f fate, at int) (writes int)) {
	t.Helper()
	writes := 0
	t.Run("undisturbed", func(t *testing.T) { writes = play(t, none, 0) })
	if writes == 0 {
		t.Fatal("no writes: this tests nothing")
	}
	for _, f := range []fate{diesBefore, diesAfter, losesReply} {
		t.Run(string(f), func(t *testing.T) {
			for _, at := range sampling.Points(t, 1, writes, strikesPerFate) {
				t.Run(fmt.Sprintf("write %d", at), func(t *testing.T) { play(t, f, at) })
			}
		})
	}
}

// Whatever write the process dies at, before or after it was made, and whatever reply it loses: the next one goes on, and
// one node is opened.
func TestOpenNodeOpensOneNodeWhateverDies(t *testing.T) {
	whateverDies(t, func(t *testing.T, f fate, at int) int {
		s := newSite(t, nodePool("edge"))
		s.node("source", 1)
		r := s.request(s.run("control", "source", "High", 60))
		p := s.spawn()
		name := p.submit(r)
		writes := p.strikes(f, at, 14)
		s.ends(name, rules.Succeeded, "is ready: box in zone")
		if n := len(s.claims()); n != 1 {
			t.Errorf("%d NodeClaims", n)
		}
		s.once()
		return writes
	})
}

// The same while the node is closed again, because nobody wants it any longer.
func TestOpenNodeLeavesNoNodeWhateverDies(t *testing.T) {
	whateverDies(t, func(t *testing.T, f fate, at int) int {
		s := newSite(t, nodePool("edge"))
		s.node("source", 1)
		r := s.request(s.run("control", "source", "High", 60))
		p := s.spawn()
		name := p.submit(r)
		p.turns(2)
		s.must(p.queue.Withdraw(s.ctx, name, "the pressure has gone"))
		writes := p.strikes(f, at, 14)
		s.ends(name, rules.RolledBack, "the pressure has gone")
		if n := len(s.claims()); n != 0 {
			t.Errorf("%d NodeClaims are left", n)
		}
		s.once()
		return writes
	})
}

// A process that is cut off in the middle of its request for a NodeClaim may have it take effect after the next one has
// undone the action. What comes of that is closed.
func TestNodesOfActionsThatCameToNothingAreClosed(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	s.node("source", 1)
	p := s.spawn()
	name := p.submit(s.request(s.run("control", "source", "High", 60)))
	p.turns(2)
	late := s.claims()[0].DeepCopy()
	s.must(p.queue.Withdraw(s.ctx, name, "the pressure has gone"))
	p.turns(8)
	s.ends(name, rules.RolledBack, "the pressure has gone")
	late.ResourceVersion, late.UID, late.Finalizers = "", "", nil
	s.create(late)
	p.keep()
	p.turns(6)
	if n := len(s.claims()); n != 0 {
		t.Errorf("%d NodeClaims are left", n)
	}
}

// The same of what Karpenter opens in place of a node, unless its own queue still goes on with it.
func TestReplacementsOfActionsThatCameToNothingAreClosed(t *testing.T) {
	for phase, want := range map[rules.Phase]int{rules.Running: 1, rules.Succeeded: 1, rules.Failed: 1, rules.RolledBack: 0} {
		t.Run(string(phase), func(t *testing.T) {
			s := newSite(t, nodePool("edge"))
			s.node("source", 1)
			p := s.spawn()
			o := &v1alpha1.RTAction{ObjectMeta: metav1.ObjectMeta{Name: "replace-source"}, Spec: v1alpha1.RTActionSpec{
				Kind: "ReplaceNode", Reason: "RTPressure", Cause: "pressure/x/1", Attempt: 1, Node: "source", Timeout: metav1.Duration{Duration: time.Minute},
				Beneficiary: v1alpha1.ActionBeneficiary{Kind: "Node", Name: "source", Criticality: "High"},
			}}
			s.create(o)
			o.Status.Phase, o.Status.PhaseTime = v1alpha1.ActionPhase(phase), &metav1.MicroTime{Time: s.clock.Now()}
			s.must(s.api.Status().Update(s.ctx, o))
			s.create(&karpv1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Annotations: map[string]string{v1alpha1.AnnotationAction: o.Name}, Labels: map[string]string{karpv1.NodePoolLabelKey: "edge"}},
				Spec: karpv1.NodeClaimSpec{
					NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
				},
			})
			p.keep()
			if n := len(s.claims()); n != want {
				t.Errorf("%d NodeClaims are left, want %d", n, want)
			}
		})
	}
}

// strikes lets the process go on for so many turns, with a fate at one of its writes from now on, and another process when it dies. It
// returns how many writes the process made, and fails if the fate did not befall it.
func (p *process) strikes(f fate, at, turns int) (writes int) {
	p.Helper()
	before := p.writes
	struck := f == none
	if f != none {
		p.fate, p.at = f, before+at
	}
	for range turns {
		p.turn()
		struck = struck || p.dead || p.at > 0 && p.writes >= p.at
		if p.dead {
			p.world()
			*p = *p.spawn()
		}
	}
	if !struck {
		p.Errorf("there was no write %d: this tests nothing", at)
	}
	return p.writes - before
}
