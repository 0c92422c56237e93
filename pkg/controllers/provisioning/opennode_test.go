package provisioning_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// weighted is a NodePool with a weight.
func weighted(name string, weight int32, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	pool := nodePool(name)
	pool.Spec.Weight = ptr.To(weight)
	for _, c := range change {
		c(pool)
	}
	return pool
}

// only has a NodePool open machines of some kinds.
func only(kinds ...string) func(*karpv1.NodePool) {
	return func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
			Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: kinds,
		})
	}
}

func TestOpenNodeOpensTheCheapestThatPasses(t *testing.T) {
	for name, c := range map[string]struct {
		pools []*karpv1.NodePool
		// budgets of the pods in percent of a core.
		budgets    []int64
		pool       string
		selector   map[string]string
		kind, from string
	}{
		"one pod: not the machine whose budgets end too late": {
			pools: []*karpv1.NodePool{nodePool("edge")}, budgets: []int64{60}, kind: "box", from: "edge",
		},
		"three that share no core: the machine with enough of them": {
			pools: []*karpv1.NodePool{nodePool("edge")}, budgets: []int64{60, 60, 60}, kind: "bigbox", from: "edge",
		},
		"the cheaper of two NodePools": {
			pools: []*karpv1.NodePool{weighted("a-dear", 5, only("bigbox")), weighted("b-cheap", 5)}, budgets: []int64{60}, kind: "box", from: "b-cheap",
		},
		"not one whose provider does not answer": {
			pools: []*karpv1.NodePool{weighted("a", 5), weighted("b-"+mysterious, 6)}, budgets: []int64{60}, kind: "box", from: "a",
		},
		"the weight comes before the price": {
			pools: []*karpv1.NodePool{weighted("a-cheap", 5), weighted("b-dear", 6, only("bigbox"))}, budgets: []int64{60}, kind: "bigbox", from: "b-dear",
		},
		"where the heaviest has none, the next": {
			pools: []*karpv1.NodePool{weighted("a", 5), weighted("b", 6, only("small"))}, budgets: []int64{60}, kind: "box", from: "a",
		},
		"the NodePool that is asked for": {
			pools: []*karpv1.NodePool{nodePool("a"), nodePool("b")}, budgets: []int64{60}, pool: "b", kind: "box", from: "b",
		},
		"a NodePool whose template claims to be for an action": {
			pools: []*karpv1.NodePool{claiming("edge")}, budgets: []int64{60}, kind: "box", from: "edge",
		},
		"the NodePool that its pod selects": {
			pools: []*karpv1.NodePool{nodePool("a"), nodePool("b")}, budgets: []int64{60}, selector: map[string]string{karpv1.NodePoolLabelKey: "b"}, kind: "box", from: "b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, c.pools...)
			s.selector = c.selector
			s.node("source", 3)
			var pods []v1alpha1.ActionPod
			for i, budget := range c.budgets {
				pods = append(pods, s.run("control-"+string(rune('a'+i)), "source", "High", budget))
			}
			p := s.spawn()
			r := s.request(pods...)
			r.NodePool = c.pool
			name := p.submit(r)
			p.turns(12)
			s.ends(name, rules.Succeeded, "is ready: "+c.kind+" in zone")
			claims := s.claims()
			if len(claims) != 1 || claims[0].Annotations[v1alpha1.AnnotationAction] != name || claims[0].Labels[karpv1.NodePoolLabelKey] != c.from || p.kinds()[0] != c.kind {
				t.Errorf("%d NodeClaims, %v", len(claims), p.kinds())
			}
		})
	}
}

// claiming is a NodePool of whose nodes the template says that another action has opened them.
func claiming(name string) *karpv1.NodePool {
	pool := nodePool(name)
	pool.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationAction: "another"}
	return pool
}

func TestOpenNodeSaysWhyItOpensNone(t *testing.T) {
	for name, c := range map[string]struct {
		pools  []*karpv1.NodePool
		budget int64
		change func(*site, *orchestration.Request)
		says   string
	}{
		"no machine has cores for it": {
			pools: []*karpv1.NodePool{weighted("plain", 1, only("small", "coarse"))}, budget: 60,
			says: "no node can be opened: NodePool plain: none of its 2 kinds of machine has cores for the pods together",
		},
		"the limit of the NodePool": {
			pools:  []*karpv1.NodePool{weighted("edge", 1, func(p *karpv1.NodePool) { p.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: *quantity("1")} })},
			budget: 60, says: "all available instance types exceed limits for nodepool",
		},
		"no NodePool": {budget: 60, says: "no node can be opened: no NodePool is ready"},
		"not the NodePool that is asked for": {
			pools: []*karpv1.NodePool{nodePool("edge")}, budget: 60, says: "no node can be opened: no NodePool lost is ready",
			change: func(_ *site, r *orchestration.Request) { r.NodePool = "lost" },
		},
		"its pods are ordinary": {
			pools: []*karpv1.NodePool{nodePool("edge")}, budget: 60, says: "none of its pods has a real-time container",
			change: func(s *site, r *orchestration.Request) {
				m := &mcv1.McKube{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: r.Pods[0].Name}}
				s.must(s.api.Delete(s.ctx, m))
			},
		},
		"its pods are on another node": {
			pools: []*karpv1.NodePool{nodePool("edge")}, budget: 60, says: "none of its pods needs a node any longer",
			change: func(s *site, r *orchestration.Request) { s.node("other", 0); r.Node = "other" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, c.pools...)
			s.node("source", 1)
			r := s.request(s.run("control", "source", "High", c.budget))
			if c.change != nil {
				c.change(s, &r)
			}
			p := s.spawn()
			name := p.submit(r)
			p.turns(4)
			s.ends(name, rules.RolledBack, c.says)
			if n := len(s.claims()); n != 0 || len(s.opened) != 0 {
				t.Errorf("%d NodeClaims, %v were asked for", n, s.opened)
			}
		})
	}
}

func TestOpenNodeTellsTheProvidersWords(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	s.node("source", 1)
	s.create(&v1alpha1.SimulatedFault{
		ObjectMeta: metav1.ObjectMeta{Name: "none-left"},
		Spec:       v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultShortage, Count: ptr.To(int32(10))},
	})
	p := s.spawn()
	name := p.submit(s.request(s.run("control", "source", "High", 60)))
	p.turns(12)
	s.ends(name, rules.RolledBack, `: insufficient capacity, launching on-demand box in zone-`)
	if n := len(s.claims()); n != 0 {
		t.Errorf("%d NodeClaims", n)
	}
	s.once()
}

func TestOpenNodeThatNeverComesIsGivenUp(t *testing.T) {
	for name, prepare := range map[string]func(*site){
		"the machine never joins": func(s *site) {
			s.create(&v1alpha1.SimulatedFault{ObjectMeta: metav1.ObjectMeta{Name: "lost"}, Spec: v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultFailedRegistration}})
		},
		"its agent never measures": func(s *site) { s.mute = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nodePool("edge"))
			s.node("source", 1)
			prepare(s)
			p := s.spawn()
			r := s.request(s.run("control", "source", "High", 60))
			r.Timeout = 20 * time.Second
			name := p.submit(r)
			p.turns(25)
			s.ends(name, rules.RolledBack, "It took longer than 20s: NodeClaim "+claimed(s)+" is not registered yet")
			p.turns(5)
			if n := len(s.claims()); n != 0 {
				t.Errorf("%d NodeClaims are left", n)
			}
			s.once()
		})
	}
}

// A node is opened for pods to move there, and nobody is moved to one whose agent is not known to live.
func TestOpenNodeWaitsUntilItsAgentIsHeardOf(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	s.node("source", 1)
	s.unheard = true
	p := s.spawn()
	name := p.submit(s.request(s.run("control", "source", "High", 60)))
	p.turns(12)
	ticket, _ := p.queue.Get(name)
	if ticket.Phase != rules.Running || !strings.Contains(ticket.Message, "takes nobody yet: its agent has not been heard of") {
		t.Fatalf("the action is %s: %s", ticket.Phase, ticket.Message)
	}
	r := &v1alpha1.RTNode{}
	s.must(s.api.Get(s.ctx, client.ObjectKey{Name: s.claims()[0].Status.NodeName}, r))
	s.hear(r)
	p.turns(2)
	s.ends(name, rules.Succeeded, "is ready")
}

func TestOpenNodeEndsWithItsNodePool(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	s.node("source", 1)
	p := s.spawn()
	name := p.submit(s.request(s.run("control", "source", "High", 60)))
	p.turns(2)
	if len(s.claims()) != 1 {
		t.Fatalf("%d NodeClaims", len(s.claims()))
	}
	s.must(s.api.Delete(s.ctx, nodePool("edge")))
	p.turns(8)
	s.ends(name, rules.RolledBack, "NodePool edge was deleted")
	if n := len(s.claims()); n != 0 {
		t.Errorf("%d NodeClaims are left", n)
	}
}

func TestOpenNodeThatIsWithdrawn(t *testing.T) {
	t.Run("before its node has come", func(t *testing.T) {
		s := newSite(t, nodePool("edge"))
		s.node("source", 1)
		p := s.spawn()
		name := p.submit(s.request(s.run("control", "source", "High", 60)))
		p.turns(2)
		s.must(p.queue.Withdraw(s.ctx, name, "the pressure has gone"))
		p.turns(8)
		s.ends(name, rules.RolledBack, "the pressure has gone: NodeClaim")
		if n := len(s.claims()); n != 0 {
			t.Errorf("%d NodeClaims are left", n)
		}
	})
	t.Run("when real-time work runs there already", func(t *testing.T) {
		s := newSite(t, nodePool("edge"))
		s.node("source", 1)
		p := s.spawn()
		r := s.request(s.run("control", "source", "High", 60))
		s.mute = true // so that the action still runs
		name := p.submit(r)
		p.turns(6)
		nodes := &corev1.NodeList{}
		s.must(s.api.List(s.ctx, nodes, client.HasLabels{karpv1.NodePoolLabelKey}))
		if len(nodes.Items) != 1 {
			t.Fatalf("%d nodes", len(nodes.Items))
		}
		s.agent(&nodes.Items[0], s.machineCores("box"))
		s.runOn("early", nodes.Items[0].Name, 1, "High", 10)
		s.must(p.look())
		s.must(p.queue.Withdraw(s.ctx, name, "the pressure has gone"))
		p.world() // Karpenter registers the node
		p.turns(3)
		s.ends(name, rules.Succeeded, "stays: real-time containers have cores there")
		if n := len(s.claims()); n != 1 {
			t.Errorf("%d NodeClaims", n)
		}
	})
}

func TestNodesAreKeptForThePodsThatTheyWereOpenedFor(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	s.node("source", 1)
	p := s.spawn()
	name := p.submit(s.request(s.run("control", "source", "High", 60)))
	p.turns(12)
	s.ends(name, rules.Succeeded, "is ready")
	id := s.claims()[0].Status.ProviderID
	for _, c := range []struct {
		after time.Duration
		want  []string
	}{{0, []string{id}}, {4 * time.Minute, []string{id}}, {5 * time.Minute, nil}} {
		s.clock.SetTime(s.action(name).Status.PhaseTime.Add(c.after))
		clear(p.nominated)
		p.keep()
		if got := p.nominations(); !slices.Equal(got, c.want) {
			t.Errorf("after %s kept: %v, want %v", c.after, got, c.want)
		}
	}
	s.clock.SetTime(s.action(name).Status.PhaseTime.Time)
	s.runOn("moved", s.claims()[0].Status.NodeName, 1, "High", 60)
	clear(p.nominated)
	p.keep()
	if len(p.nominated) != 0 || len(s.claims()) != 1 {
		t.Errorf("kept with work on it: %v, %d NodeClaims", p.nominated, len(s.claims()))
	}
}
