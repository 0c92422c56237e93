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

// tries is how many options of an escalation level that were tried before the planner looks at. After that the level counts as
// one that has no action.
const tries = 32

// attempts is how many attempts at other actions the last resort waits for. More would keep it from ever helping where a budget
// or a policy never lets a pod go.
const attempts = 3

// planner chooses the action that answers a pressure. It changes nothing.
type planner struct {
	Snapshot *state.Snapshot
	Node     *state.NodeView
	Episode
	// Affected are the affected containers, the most critical first.
	Affected []AffectedContainer
	// Answers are the actions for the cause so far. The planner does not move again what they moved.
	Answers []*v1alpha1.RTAction
	// Beside are those of them that are in progress.
	Beside []*v1alpha1.RTAction
	// Ticket is the result of an earlier identical request, if there was one. Held: another action has the pod. Fits: the node
	// has all resources other than cores that the pods request together.
	Ticket func(orchestration.Request) (orchestration.Ticket, bool)
	Held   func(types.UID) bool
	Fits   func(node string, pods ...*state.PodView) bool
	// Passage is how a pod would go to a node or, without a node, to any.
	Passage func(pod *state.PodView, node string) Passage
	// Leave is what the PodDisruptionBudgets allow for the pods of the node.
	Leave pdb.Leave
	// Pool is the NodePool that may replace the node; empty: none.
	Pool    string
	Options Options
	Now     time.Time
	// Since is the time after which a container must have been affected; zero: any time.
	Since time.Time

	contention contention
	// ahead is the first container of an earlier group that nothing helps; empty: none.
	ahead string
	// below: the planner looks only at levels cheaper than another node, because an action already opens a node for the same
	// containers.
	below  bool
	before layout
	pods   map[types.UID][]*state.ServerView
	moved  map[types.UID]bool
	opened nodesOpened
	// goes are the destinations computed so far. ties are the reasons why pods must stay that the current level met.
	goes map[types.UID]*state.Destination
	ties map[types.UID]string
}

// option is an action that would help.
type option struct {
	Kind rules.Kind
	Pods []types.UID
	// next are the pods that must go after Pods. If they cannot, Pods go for nothing.
	next   []types.UID
	Moves  []v1alpha1.ActionMove
	Target string
	effect
	price price
	// left is the bandwidth left on the core that the moved containers go to, if it is known.
	left rt.PPM
	// departing are the pods that leave the node for their own sake.
	departing []types.UID
	// displaced are the pods that leave with their node. again are those of them that were moved for the cause before.
	displaced, again []types.UID
	// What it does, in words.
	What string
}

// answer is the choice of the planner, or the reason why there is none.
type answer struct {
	option
	Request orchestration.Request
	// of is the criticality of the containers that it is for.
	of rt.Criticality
	// Leaving are the pods that leave the node because they are late there. The controller must record them first.
	Leaving []departure
	// Vain: the action was tried before and came to nothing, or a PodDisruptionBudget blocks it. The same is true of all other
	// actions that would help.
	Vain bool
	// Before names the first container of an earlier group, which only actions tried in vain would help; empty: none.
	Before string
	// Passed are the reasons why the cheaper levels have no action. If Vain is set they are those of all levels.
	Passed []string
	// Again is when the first attempt in backoff may be made again; zero for none.
	Again time.Time
	// rests: an action may help later that is in backoff, or waits for a budget, and was not tried often yet.
	rests bool
}

// vain describes the containers without help, although the controller acts; empty: there are none.
func (a *answer) vain() string {
	switch {
	case a.Vain:
		return "all that would help was tried in vain or is kept, and is tried again: " + strings.Join(a.Passed, "; ")
	case a.Before != "":
		return "nothing helps " + a.Before + " that was not tried in vain; others are helped meanwhile"
	}
	return ""
}

// heard takes the result of an attempt at an option that would help into account.
func (a *answer) heard(t orchestration.Ticket) {
	if t.Again.IsZero() {
		return
	}
	a.rests = a.rests || t.Attempt < attempts
	if a.Again.IsZero() || t.Again.Before(a.Again) {
		a.Again = t.Again
	}
}

// escalationLevel finds the options of a kind, in any order. why is the text for a level without options.
type escalationLevel struct {
	kind rules.Kind
	find func(*planner) []option
	why  string
}

// escalationLevels lists the levels from the cheapest. If all pods of a node are late, the node is at fault. Replacing it moves
// no more pods than moving them one by one, and leaves no faulty node behind for other pods. If the replacement would move a pod
// again, all other levels come first.
func (p *planner) escalationLevels() []escalationLevel {
	all := []escalationLevel{
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

// late tells whether all governed pods that stay on the node miss their deadlines. More than one of them must not have been late
// on another node.
func (p *planner) late() bool {
	missing, steady, all := map[types.UID]bool{}, map[types.UID]bool{}, 0
	for uid := range p.pods {
		if stays(p.Snapshot, uid) {
			all++
		}
	}
	for _, s := range p.Affected {
		if s.Source == SourceMisses {
			missing[s.PodUID] = true
			steady[s.PodUID] = !p.failedElsewhere(s)
		}
	}
	maps.DeleteFunc(steady, func(_ types.UID, is bool) bool { return !is })
	return len(steady) > 1 && len(missing) == all
}

// ask looks for the action of a level. It takes the first option that nothing is known to prevent. If there is none, or it would
// move a more critical pod, it takes the first option that budgets block, if no action has waited for a budget yet. Otherwise,
// if no earlier level has an action, it takes the first option that may be tried in vain. why is the objection to the last
// option.
func (p *planner) ask(r escalationLevel, out *answer) (why string) {
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

// passOver makes an option the answer in vain, if it may be one and there is none yet. It records when the option may help.
func (p *planner) passOver(w weighed, out *answer) {
	if out.Kind == "" && p.askable(w) {
		p.take(w, out, true)
	}
	out.heard(w.ticket)
	out.rests = out.rests || !w.tried && w.waits && p.waited() < attempts
}

// highest is the criticality of the most critical pod that goes.
func (p *planner) highest(o option) rt.Criticality {
	out := rt.Low
	for _, uid := range slices.Concat(o.Pods, o.next) {
		out = max(out, criticalityOf(p.pods[uid]))
	}
	return out
}

// take makes an option the answer.
func (p *planner) take(w weighed, out *answer, vain bool) {
	out.option, out.Request, out.Leaving, out.Vain = w.option, w.Request, p.leaving(w.option), vain
	out.of = p.contention.affected[0].Criticality
}

// became describes the result of an attempt. Once it is over the text contains its message, such as the refusal of a policy.
func became(t orchestration.Ticket) string {
	text := fmt.Sprintf("action %s is %s", t.Name, t.Phase)
	if t.Phase.Over() && t.Message != "" {
		text += " (" + record.Short(t.Message, longestWhy) + ")"
	}
	return text
}

// longestWhy is the maximum length in bytes of an action's message within other text.
const longestWhy = 160

// submittable tells whether the backoff of an attempt is over.
func submittable(t orchestration.Ticket, now time.Time) bool {
	return t.Phase.Over() && !t.Again.IsZero() && !now.Before(t.Again)
}

// sorted returns the options that help, the best first. Options that cure come first, by price. The others follow by the
// bandwidth that they free per price.
func (p *planner) sorted(list []option) []option {
	lacking := p.contention.lacking(p.before)
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

// refused tells whether the agent could not apply the budget of a container whose core has room for it. The cause is not a lack
// of room then, and the departure of other pods does not help.
func (p *planner) refused(s AffectedContainer) bool {
	return s.Source == SourceNoCore && p.before.on(s.ID) != rt.NoCore && p.contention.passes(p.before, s)
}

// contendedCores are the cores on which other containers affect a container. They are all cores if an affected container has
// none.
func (p *planner) contendedCores() map[int]bool {
	out := map[int]bool{}
	for _, s := range p.contention.affected {
		if p.refused(s) {
			continue
		}
		if core := p.before.on(s.ID); core != rt.NoCore {
			out[core] = true
			continue
		}
		for id := range p.contention.cores {
			out[id] = true
		}
	}
	return out
}

// gone is the effect and the price of the departure of pods.
func (p *planner) gone(pods []types.UID) (effect, price) {
	ids, cost := map[string]bool{}, price(0)
	for _, uid := range pods {
		for _, s := range p.pods[uid] {
			ids[s.ID] = true
		}
		cost += priceOf(p.Node, p.pods[uid])
	}
	return p.contention.effect(p.before, p.before.without(ids)), cost
}

// free tells whether the planner may touch a pod for this cause: it was not moved for it before, and no other action has it.
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
