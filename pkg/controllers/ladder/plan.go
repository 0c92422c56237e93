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
	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// tries is how many actions of a rung that were tried before are looked at before it counts as one that has none.
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
	// Beside are those of them that are under way.
	Beside []*v1alpha1.RTAction
	// Ticket is what became of a request, if it was made before. Held: another action has the pod. Fits: the node has
	// everything but cores that the pods ask for together.
	Ticket func(orchestration.Request) (orchestration.Ticket, bool)
	Held   func(types.UID) bool
	Fits   func(node string, pods ...*state.PodView) bool
	// Passage is how a pod would go to a node, or without that to any.
	Passage func(pod *state.PodView, node string) Passage
	// Leave is what PodDisruptionBudgets say to the pods of the node.
	Leave pdb.Leave
	// Pool by which the node may be replaced; empty: by none.
	Pool    string
	Options Options
	Now     time.Time
	// Since is after when somebody must have been seen to suffer; zero: whenever it was.
	Since time.Time

	crowd crowd
	// ahead is the first of those who come before and whom nothing helps; empty for nobody.
	ahead string
	// below: only what is cheaper than another node is looked for, as one is opened for the same sake.
	below  bool
	before layout
	pods   map[types.UID][]*state.ServerView
	moved  map[types.UID]bool
	opened nodesOpened
	// goes are the destinations that were asked for, ties why pods must stay that the rung was asked about.
	goes map[types.UID]*state.Destination
	ties map[types.UID]string
}

// option is an action that would help.
type option struct {
	Kind rules.Kind
	Pods []types.UID
	// next are those who must go after Pods, or these go for nothing.
	next   []types.UID
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
	// of is the criticality of whom it is for.
	of rt.Criticality
	// Leaving is who leaves the node because it is late there, which must be noted first.
	Leaving []departure
	// Vain: it was tried before and came to nothing, or a PodDisruptionBudget keeps it, as is true of all others that would help.
	Vain bool
	// Before names the first of more critical ones, or as critical, whom nothing helps that was not tried in vain; empty: nobody.
	Before string
	// Passed over are the cheaper rungs, and why; of one that is tried again in vain, all rungs.
	Passed []string
	// Again is when an attempt that rests may be made again; zero for none.
	Again time.Time
	// rests: an action that has not been tried often yet rests, or waits for a budget that was not waited for often, and may help then.
	rests bool
}

// vain says for whom there is no help, though something is done; empty for nobody.
func (a *answer) vain() string {
	switch {
	case a.Vain:
		return "all that would help was tried in vain or is kept, and is tried again: " + strings.Join(a.Passed, "; ")
	case a.Before != "":
		return "nothing helps " + a.Before + " that was not tried in vain; others are helped meanwhile"
	}
	return ""
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
		{rules.ReplaceNode, (*planner).replacements, "another node of the kind would not help, or the node belongs to no NodePool that replaces nodes, or pods of it must stay"},
	}
	if p.below {
		return all[:3]
	}
	if p.late() && !slices.ContainsFunc(sortedPods(p.pods), func(uid types.UID) bool { return p.moved[uid] }) {
		return append(all[len(all)-1:], all[:len(all)-1]...)
	}
	return all
}

// late tells whether all governed pods that stay on the node miss their deadlines, and more than one that was not late elsewhere, too.
func (p *planner) late() bool {
	missing, steady, all := map[types.UID]bool{}, map[types.UID]bool{}, 0
	for uid := range p.pods {
		if stays(p.Snapshot, uid) {
			all++
		}
	}
	for _, s := range p.Sufferers {
		if s.Source == SourceMisses {
			missing[s.PodUID] = true
			steady[s.PodUID] = !p.wandering(s)
		}
	}
	maps.DeleteFunc(steady, func(_ types.UID, is bool) bool { return !is })
	return len(steady) > 1 && len(missing) == all
}

// ask looks for the action of a rung: the first of which nothing is known that is against it; else, or where somebody more critical would go, the first
// that budgets keep, if none was waited for; else, if no rung before has one, the first that may be tried in vain. why says what is against the last.
func (p *planner) ask(r rung, out *answer) (why string) {
	p.ties = map[types.UID]string{}
	list := p.sorted(r.find(p))
	why = r.why + p.staying()
	var awaited *weighed
	tried := 0
	for _, o := range list {
		if tried == tries {
			break
		}
		if o.Kind = r.kind; len(o.again) > 0 && out.rests {
			why = "it would move again who was moved before, and something else may help soon"
			continue
		}
		w := p.weigh(o, out.Passed)
		if !w.tried && !w.kept {
			if awaited == nil || p.highest(o) <= p.highest(awaited.option) {
				p.take(w, out, false)
				return ""
			}
			continue
		}
		if w.tried {
			tried++
		} else if awaited == nil && w.waits && p.waited() == 0 {
			awaited = &w
		}
		p.passOver(w, out)
		why = w.why
	}
	if awaited != nil {
		p.take(*awaited, out, false)
	}
	return why
}

// passOver has an option be the answer in vain, if it may and there is none before it, and hears when it may help.
func (p *planner) passOver(w weighed, out *answer) {
	if out.Kind == "" && p.askable(w) {
		p.take(w, out, true)
	}
	out.heard(w.ticket)
	out.rests = out.rests || !w.tried && w.waits && p.waited() < attempts
}

// highest is the criticality of the most critical who goes.
func (p *planner) highest(o option) rt.Criticality {
	out := rt.Low
	for _, uid := range slices.Concat(o.Pods, o.next) {
		out = max(out, criticalityOf(p.pods[uid]))
	}
	return out
}

// take has an option be the answer.
func (p *planner) take(w weighed, out *answer, vain bool) {
	out.option, out.Request, out.Leaving, out.Vain = w.option, w.Request, p.leaving(w.option), vain
	out.of = p.crowd.sufferers[0].Criticality
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

// refused tells whether the agent could not apply the budget of somebody whose core has room for it: it is not want of room then, whatever it is, and
// nobody else's going helps.
func (p *planner) refused(s Sufferer) bool {
	return s.Source == SourceNoCore && p.before.on(s.ID) != rt.NoCore && p.crowd.passes(p.before, s)
}

// crowded are the cores on which somebody suffers from others; all of them when somebody has none.
func (p *planner) crowded() map[int]bool {
	out := map[int]bool{}
	for _, s := range p.crowd.sufferers {
		if p.refused(s) {
			continue
		}
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
	return stays(p.Snapshot, uid) && !p.moved[uid] && !p.held(uid)
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
