package ladder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// tries is how many actions of a rung are looked at before it counts as one that has none.
const tries = 32

// attempts is how many attempts at anything else the last resort waits for. More would keep it from ever helping where a budget or a policy
// never lets a pod go.
const attempts = 3

// planner chooses the action that answers a pressure. It changes nothing.
type planner struct {
	Snapshot *state.Snapshot
	Node     *state.NodeView
	Episode
	// Sufferers, the most critical first.
	Sufferers []Sufferer
	// Answers are the actions for the cause so far: what they moved is not moved again.
	Answers []*v1alpha1.RTAction
	// Ticket is what became of a request, if it was made before. Held: another action has the pod. Fits: the node has
	// everything but cores that the pods ask for together.
	Ticket func(orchestration.Request) (orchestration.Ticket, bool)
	Held   func(types.UID) bool
	Fits   func(node string, pods ...*state.PodView) bool
	// Passage is how a pod would go to a node, or without that to any.
	Passage func(pod *state.PodView, node string) Passage
	// Kept is which PodDisruptionBudget would not let a request begin now; empty: none.
	Kept func(orchestration.Request) string
	// Pool of the node; empty: nobody manages it.
	Pool    string
	Options Options
	Now     time.Time

	crowd  crowd
	before layout
	pods   map[types.UID][]*state.ServerView
	moved  map[types.UID]bool
	// goes are the destinations that were asked for, ties why pods must stay that the rung was asked about.
	goes map[types.UID]*state.Destination
	ties map[types.UID]string
}

// option is an action that would help.
type option struct {
	Kind   rules.Kind
	Pods   []types.UID
	Moves  []v1alpha1.ActionMove
	Target string
	effect
	price price
	// left is what the core has left that the moved go to, where that is known.
	left rt.PPM
	// leavers are those of the pods that leave the node for their own sake.
	leavers []types.UID
	// displaced are the pods that leave with their node, and again those of them that were moved for the cause before.
	displaced, again []types.UID
	// What it does, in words.
	What string
}

// answer is what the planner chose, or why nothing.
type answer struct {
	option
	Request orchestration.Request
	// Leaving is who leaves the node because it is late there, which must be noted first.
	Leaving []departure
	// Vain: it was tried before and came to nothing, or a PodDisruptionBudget keeps it, as is true of all others that would help.
	Vain bool
	// Passed over are the cheaper rungs, and why; of one that is tried again in vain, all rungs.
	Passed []string
	// Again is when an attempt that rests may be made again; zero for none.
	Again time.Time
	// rests: an action that has not been tried often yet rests, and may help then.
	rests bool
}

// heard is what became of an attempt at something that would help.
func (a *answer) heard(t orchestration.Ticket) {
	if t.Again.IsZero() {
		return
	}
	a.rests = a.rests || t.Attempt < attempts
	if a.Again.IsZero() || t.Again.Before(a.Again) {
		a.Again = t.Again
	}
}

// rung finds the options of a kind, in any order. why says in words what there is none of.
type rung struct {
	kind rules.Kind
	find func(*planner) []option
	why  string
}

// rungs from the cheapest. Where all that runs on a node is late, the node is what is wrong: to replace it moves nobody more
// than to move them all one by one, and leaves no such node behind for the next. But where it moves again who was moved before,
// everything else comes first.
func (p *planner) rungs() []rung {
	all := []rung{
		{rules.Rearrange, (*planner).rearrangements, "no other placement on the node's cores gives more room"},
		{rules.Migrate, (*planner).migrations, "no pod whose leaving would help may be moved and finds a core elsewhere" + p.shut()},
		{rules.Preempt, (*planner).preemptions, "no less critical pod is in the way"},
		{rules.OpenNode, (*planner).openings, "no pod waits for a core elsewhere whose leaving would help"},
		{rules.ReplaceNode, (*planner).replacements, "another node of the kind would not help, or the node belongs to no NodePool, or pods of it must stay"},
	}
	if p.late() && !slices.ContainsFunc(sortedPods(p.pods), func(uid types.UID) bool { return p.moved[uid] }) {
		return append(all[len(all)-1:], all[:len(all)-1]...)
	}
	return all
}

// late tells whether all governed pods of the node miss their deadlines, and more than one that was not late elsewhere, too.
func (p *planner) late() bool {
	missing, steady := map[types.UID]bool{}, map[types.UID]bool{}
	for _, s := range p.Sufferers {
		if s.Source == SourceMisses {
			missing[s.PodUID] = true
			steady[s.PodUID] = !p.wandering(s)
		}
	}
	maps.DeleteFunc(steady, func(_ types.UID, is bool) bool { return !is })
	return len(steady) > 1 && len(missing) == len(p.pods)
}

// choose is the cheapest action of the lowest rung that helps. What was tried in vain and has rested since, and what a PodDisruptionBudget keeps
// when that was waited for, is no help: it is for when all rungs have no other. ok is false when there is none.
func (p planner) choose() (out answer, ok bool) {
	p.prepare()
	for _, r := range p.rungs() {
		p.ties = map[types.UID]string{}
		list := p.sorted(r.find(&p))
		why := r.why + p.staying(r.kind)
		for i, o := range list {
			if i == tries {
				break
			}
			if o.Kind = r.kind; len(o.again) > 0 && out.rests {
				why = "it would move again who was moved before, and something else may help soon"
				continue
			}
			found, may := p.weigh(o, out.Passed)
			if may && (!ok || !found.Vain) {
				out.option, out.Request, out.Leaving, out.Vain, ok = o, found.Request, p.leaving(o), found.Vain, true
			}
			if ok && !out.Vain {
				return out, true
			}
			why = found.why
			out.heard(found.ticket)
		}
		out.Passed = append(out.Passed, fmt.Sprintf("%s: %s", r.kind, why))
	}
	out.Passed = append(p.wanderers(), out.Passed...)
	return out, ok
}

// became says what became of an attempt and, once it is over, why: a policy that forbids it is heard in its own words.
func became(t orchestration.Ticket) string {
	text := fmt.Sprintf("action %s is %s", t.Name, t.Phase)
	if t.Phase.Over() && t.Message != "" {
		text += " (" + record.Short(t.Message, longestWhy) + ")"
	}
	return text
}

// longestWhy is how many bytes of an action's message are told of with others'.
const longestWhy = 160

// submittable tells whether an attempt at the same may be made.
func submittable(t orchestration.Ticket, now time.Time) bool {
	return t.Phase.Over() && !t.Again.IsZero() && !now.Before(t.Again)
}

// prepare works out what all rungs look at. The most critical who suffer decide: the others have their turn once these do
// no longer.
func (p *planner) prepare() {
	p.crowd, p.before = crowdOf(p.Node, p.Sufferers), layoutOf(p.Node)
	p.pods, p.goes = podsOn(p.Node), map[types.UID]*state.Destination{}
	p.moved = movedBy(p.Answers)
}

// sorted are the options that help, the best first: those that cure, by what they cost; then by what they free for what
// they cost.
func (p *planner) sorted(list []option) []option {
	lacking := p.crowd.lacking(p.before)
	out := slices.DeleteFunc(list, func(o option) bool { return !o.helps(lacking) })
	slices.SortFunc(out, func(a, b option) int {
		byCure := cmp.Compare(b.Cured, a.Cured)
		if byCure == 0 && a.Cured > 0 {
			byCure = cmp.Compare(a.price, b.price)
		}
		return cmp.Or(byCure, cmp.Compare(int64(b.Net)*int64(a.price), int64(a.Net)*int64(b.price)), cmp.Compare(a.price, b.price),
			cmp.Compare(b.left, a.left), strings.Compare(a.What, b.What))
	})
	return out
}

// suffers tells whether the pod is one of those that the action is for.
func (p *planner) suffers(uid types.UID) bool {
	return slices.ContainsFunc(p.crowd.sufferers, func(s Sufferer) bool { return s.PodUID == uid })
}

// crowded are the cores on which somebody suffers; all of them when somebody has none.
func (p *planner) crowded() map[int]bool {
	out := map[int]bool{}
	for _, s := range p.crowd.sufferers {
		if core := p.before.on(s.ID); core != rt.NoCore {
			out[core] = true
			continue
		}
		for id := range p.crowd.cores {
			out[id] = true
		}
	}
	return out
}

// sets are the sets of pods whose going may help, of those that may: each that shares a core with somebody who suffers, and of those in the
// way of somebody who lacks room the cheapest on each core. None is more critical than they are, and none suffers.
func (p *planner) sets(may func(types.UID) bool) [][]types.UID {
	cores, top := p.crowded(), p.crowd.sufferers[0].Criticality
	var out [][]types.UID
	for _, uid := range sortedPods(p.pods) {
		near := slices.ContainsFunc(p.pods[uid], func(s *state.ServerView) bool { return cores[s.Physical] })
		if near && !p.suffers(uid) && criticalityOf(p.pods[uid]) <= top && may(uid) {
			out = append(out, []types.UID{uid})
		}
	}
	for _, s := range p.crowd.sufferers {
		if p.crowd.passes(p.before, s) {
			continue
		}
		for id, core := range p.crowd.cores {
			if at := p.before.on(s.ID); at != rt.NoCore && at != id {
				continue
			}
			if pods := p.least(core, p.before[id], s.Wanted, may); len(pods) > 1 {
				out = append(out, pods)
			}
		}
	}
	return out
}

// ranked gives each server the criticality of its whole pod, because all of it would go; who may not go the highest.
func (p *planner) ranked(l rt.Load, may func(types.UID) bool) rt.Load {
	l.Servers = slices.Clone(l.Servers)
	for i := range l.Servers {
		l.Servers[i].Criticality = rt.High
		if v, ok := p.Node.Server(l.Servers[i].ID); ok && v.McKube != nil && v.Running && may(v.PodUID) {
			l.Servers[i].Criticality = criticalityOf(p.pods[v.PodUID])
		}
	}
	return l
}

// least are the less critical pods on a core, of those that may go, whose going costs least and leaves room for a server; none where none would do.
func (p *planner) least(core rt.Core, servers []rt.Server, wanted rt.Server, may func(types.UID) bool) []types.UID {
	candidates, of := map[types.UID]rt.Candidate{}, map[string]types.UID{}
	for _, o := range p.ranked(rt.Load{Core: core, Servers: servers}, may).Servers {
		v, ok := p.Node.Server(o.ID)
		if !ok || o.Criticality >= wanted.Criticality || o.ID == wanted.ID {
			continue
		}
		c := candidates[v.PodUID]
		c.ID, c.Loss, c.Size = string(v.PodUID), int64(priceOf(p.Node, p.pods[v.PodUID])), c.Size+o.Charge(core.Granularity)
		candidates[v.PodUID], of[o.ID] = c, v.PodUID
	}
	gone, _ := rt.LeastLoss(slices.Collect(maps.Values(candidates)), func(gone []rt.Candidate) bool {
		rest := slices.DeleteFunc(slices.Clone(servers), func(o rt.Server) bool {
			uid, may := of[o.ID]
			return may && slices.Contains(gone, candidates[uid])
		})
		return rt.Admit(core, rest, wanted).Admitted
	})
	out := map[types.UID]bool{}
	for _, c := range gone {
		out[types.UID(c.ID)] = true
	}
	return sortedUIDs(out)
}

// gone is what it brings, and costs, when pods go.
func (p *planner) gone(pods []types.UID) (effect, price) {
	ids, cost := map[string]bool{}, price(0)
	for _, uid := range pods {
		for _, s := range p.pods[uid] {
			ids[s.ID] = true
		}
		cost += priceOf(p.Node, p.pods[uid])
	}
	return p.crowd.effect(p.before, p.before.without(ids)), cost
}

// free tells whether a pod may be touched for this cause: not moved for it before, and in nobody's hands.
func (p *planner) free(uid types.UID) bool {
	view, ok := p.Snapshot.Pod(uid)
	return ok && !view.Deleting && !view.Finished() && !p.moved[uid] && !p.Held(uid)
}

// names of pods, in words.
func (p *planner) names(pods []types.UID) string {
	var out []string
	for _, uid := range pods {
		if view, ok := p.Snapshot.Pod(uid); ok {
			out = append(out, view.Key().String())
		}
	}
	return strings.Join(out, ", ")
}

func sortedPods(pods map[types.UID][]*state.ServerView) []types.UID {
	set := map[types.UID]bool{}
	for uid := range pods {
		set[uid] = true
	}
	return sortedUIDs(set)
}
