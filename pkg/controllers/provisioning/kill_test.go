package provisioning_test

import (
	"fmt"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Whatever write the process dies at, before or after it was made, and whatever reply it loses: the next one goes on, and
// one node is opened.
func TestOpenNodeOpensOneNodeWhateverDies(t *testing.T) {
	for _, f := range []fate{diesBefore, diesAfter, losesReply} {
		for at := 1; ; at++ {
			over := false
			t.Run(fmt.Sprintf("%s write %d", f, at), func(t *testing.T) {
				s := newSite(t, nodePool("edge"))
				s.node("source", 1)
				r := s.request(s.run("control", "source", "High", 60))
				p := s.spawn()
				name := p.submit(r)
				p.fate, p.at = f, p.writes+at
				over = !p.survives(14)
				s.ends(name, rules.Succeeded, "is ready: box in zone")
				if n := len(s.claims()); n != 1 {
					t.Errorf("%d NodeClaims", n)
				}
				s.once()
			})
			if over || t.Failed() {
				break
			}
		}
	}
}

// The same while the node is closed again, because nobody wants it any longer.
func TestOpenNodeLeavesNoNodeWhateverDies(t *testing.T) {
	for _, f := range []fate{diesBefore, diesAfter, losesReply} {
		for at := 1; ; at++ {
			over := false
			t.Run(fmt.Sprintf("%s write %d", f, at), func(t *testing.T) {
				s := newSite(t, nodePool("edge"))
				s.node("source", 1)
				r := s.request(s.run("control", "source", "High", 60))
				p := s.spawn()
				name := p.submit(r)
				p.turns(2)
				s.must(p.queue.Withdraw(s.ctx, name, "the pressure has gone"))
				p.fate, p.at = f, p.writes+at
				over = !p.survives(14)
				s.ends(name, rules.RolledBack, "the pressure has gone")
				if n := len(s.claims()); n != 0 {
					t.Errorf("%d NodeClaims are left", n)
				}
				s.once()
			})
			if over || t.Failed() {
				break
			}
		}
	}
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

// survives lets the process go on for so many turns, and another one when it dies. It tells whether the fate has struck.
func (p *process) survives(turns int) bool {
	p.Helper()
	struck := false
	for range turns {
		if p.turn(); p.dead {
			struck = true
			p.world()
			*p = *p.spawn()
		}
	}
	return struck || p.at > 0 && p.writes >= p.at
}
