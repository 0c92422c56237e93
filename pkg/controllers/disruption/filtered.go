package disruption

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	disruptionevents "sigs.k8s.io/karpenter/pkg/controllers/disruption/events"

	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// rests is how long a node is no candidate after a command that would have closed it was refused: the search would
// only find the same again.
const rests = 5 * time.Minute

// filtered is a standard method without the nodes that real-time work needs. It tries the nodes without such work first, and
// all of them when that comes to nothing. Consolidation has two instances for that: each remembers when it has looked at
// everything in vain. Every other method has one. Repair counts the reboots of a node, and each of two instances would know
// of some only.
type filtered struct {
	disruption.Method                   // for nodes without real-time work
	any               disruption.Method // for all nodes; the same, but of consolidation
	Dependencies

	mutex sync.Mutex
	// resting nodes, until when.
	resting map[string]time.Time

	// candidates of consolidation in the last pass that had any. searched: this pass has.
	candidates map[string]bool
	searched   bool
}

func newFiltered(d Dependencies, quiet, all disruption.Method) *filtered {
	return &filtered{Method: quiet, any: all, Dependencies: d, resting: map[string]time.Time{}}
}

// ShouldDisrupt implements disruption.Method.
func (m *filtered) ShouldDisrupt(ctx context.Context, c *disruption.Candidate) bool {
	if m.Trigger.pending() || m.rests(c.Name()) || !m.Method.ShouldDisrupt(ctx, c) {
		return false
	}
	o := m.bufferObjection(ctx, c)
	if o == nil {
		o = m.kept(inHand(m.actions(), ""), m.Store.Snapshot(), c)
	}
	if o != nil {
		m.tell(c, *o)
	}
	return o == nil
}

// lost tells whether repair closes a node because its kubelet is not ready, or is not heard from. No action keeps such a
// node. An action that has it in hand makes no progress there, and may wait for the very pods that go with the machine. Its
// containers have no core there, either.
func (m *filtered) lost(s *state.Snapshot, node string) bool {
	n, ok := s.NodeView(node)
	return ok && !n.Ready && m.Reason() == karpv1.DisruptionReasonUnhealthy
}

// kept is the objection to closing a node at this moment; nil for none.
func (m *filtered) kept(hand held, s *state.Snapshot, c *disruption.Candidate) *objection {
	if m.lost(s, c.Name()) {
		return nil
	}
	if o := m.promised(c); o != nil {
		return o
	}
	return hand.busy(s, c.Name(), true)
}

// SetNodePoolTotals implements disruption.NodePoolTotalsSetter.
func (m *filtered) SetNodePoolTotals(totals map[string]disruption.NodePoolTotals) {
	for _, method := range []disruption.Method{m.Method, m.any} {
		if setter, ok := method.(disruption.NodePoolTotalsSetter); ok {
			setter.SetNodePoolTotals(totals)
		}
	}
}

// ComputeCommands implements disruption.Method. A search that the trigger has ended has found nothing, and left nothing
// settled.
func (m *filtered) ComputeCommands(ctx context.Context, budgets map[string]int, candidates ...*disruption.Candidate) ([]disruption.Command, error) {
	m.markNewCandidates(candidates)
	search := m.Trigger.search(ctx)
	defer search.stop()
	for _, way := range m.ways(m.decideReboots(ctx, candidates)) {
		commands, err := way.method.ComputeCommands(search, maps.Clone(budgets), way.candidates...)
		if m.Trigger.pending() {
			m.release(commands)
			m.Cluster.MarkUnconsolidated()
			metrics.SearchesPreempted.Inc()
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if commands = m.permitted(ctx, commands); len(commands) > 0 {
			if noting, ok := way.method.(interface {
				begun(context.Context, disruption.Command)
			}); ok {
				noting.begun(ctx, commands[0])
			}
			return commands, nil
		}
	}
	return nil, nil
}

// reluctance is added to what Karpenter reckons it costs to move the pods of a node with real-time work: it
// looks at nodes by what they cost for that, and then comes to such nodes last. Balanced consolidation weighs these costs
// against savings, and is given the true ones.
const reluctance = 1e6

// way is which nodes an instance of the method looks at.
type way struct {
	method     disruption.Method
	candidates []*disruption.Candidate
}

func (m *filtered) ways(candidates []*disruption.Candidate) (out []way) {
	snapshot := m.Store.Snapshot()
	quiet, busy := lo.FilterReject(candidates, func(c *disruption.Candidate, _ int) bool { return !governed(snapshot, c.Name()) })
	for _, c := range busy {
		if c.NodePool.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyBalanced {
			c.RescheduleDisruptionCost += reluctance
		}
	}
	if len(quiet) > 0 {
		out = append(out, way{m.Method, quiet})
	}
	if len(busy) > 0 {
		out = append(out, way{m.any, slices.Concat(quiet, busy)})
	}
	return out
}

// permitted are the commands that leave every real-time container a core. The world has moved on since the candidates
// were chosen, for methods validate what they have found for a while, so that is looked at again too.
func (m *filtered) permitted(ctx context.Context, commands []disruption.Command) (out []disruption.Command) {
	for _, c := range commands {
		if c.Reboot { // it was judged before, and is under way
			out = append(out, c)
			continue
		}
		permitted, objections := m.judge(ctx, c)
		for _, o := range objections {
			m.refuse(c, o)
		}
		if permitted.Decision() == disruption.NoOpDecision {
			m.release([]disruption.Command{c})
			continue
		}
		out = append(out, permitted)
	}
	return out
}

// judge is as much of a command as may be done, and the objections to the rest. A command without replacements may be
// done in part; one with replacements is for exactly its nodes.
func (m *filtered) judge(ctx context.Context, c disruption.Command) (disruption.Command, []objection) {
	var all []objection
	for range len(c.Candidates) + 1 {
		objections := m.objections(ctx, &c)
		if len(objections) == 0 {
			return c, all
		}
		all = append(all, objections...)
		if len(c.Replacements) > 0 {
			break
		}
		c.Candidates = slices.DeleteFunc(slices.Clone(c.Candidates), func(n *disruption.Candidate) bool {
			return slices.ContainsFunc(objections, func(o objection) bool { return o.node == n.Name() })
		})
	}
	return disruption.Command{}, all
}

// objections to a command, of which replacements that would not do are taken out.
func (m *filtered) objections(ctx context.Context, c *disruption.Command) (out []objection) {
	snapshot, hand := m.Store.Snapshot(), inHand(m.actions(), "")
	for _, n := range c.Candidates {
		if o := m.kept(hand, snapshot, n); o != nil {
			out = append(out, *o)
		}
	}
	if len(out) > 0 {
		return out
	}
	return slices.DeleteFunc(m.housed(ctx, snapshot, c), func(o objection) bool { return m.lost(snapshot, o.node) })
}

// refuse leaves a node alone for a while, and says so.
func (m *filtered) refuse(c disruption.Command, o objection) {
	metrics.DisruptionRefusals.WithLabelValues(o.reason).Inc()
	m.rest(o.node)
	for _, n := range c.Candidates {
		if n.Name() == o.node {
			m.tell(n, o)
		}
	}
}

// rest leaves a node alone for a while.
func (m *filtered) rest(node string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.resting[node] = m.Clock.Now().Add(rests)
}

// rests tells whether a node is left alone for now, and forgets those that were.
func (m *filtered) rests(node string) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	now := m.Clock.Now()
	maps.DeleteFunc(m.resting, func(_ string, until time.Time) bool { return !now.Before(until) })
	_, ok := m.resting[node]
	return ok
}

// tell says on the node why it is left alone.
func (m *filtered) tell(c *disruption.Candidate, o objection) {
	m.Recorder.Publish(disruptionevents.Unconsolidatable(c.Node, c.NodeClaim, o.reason+": "+o.message)...)
}

// release gives back the places that commands for static NodePools have reserved, which are not carried out.
func (m *filtered) release(commands []disruption.Command) {
	for _, c := range commands {
		for _, r := range c.Replacements {
			if r.IsStaticNodeClaim {
				m.Cluster.NodePoolState.ReleaseNodeCount(r.NodePoolName, 1)
			}
		}
	}
}
