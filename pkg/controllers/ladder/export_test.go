package ladder

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// These types are for tests outside the package.
type (
	Planner = planner
	Answer  = answer
	Scene   = scene
	Step    = step
	Watch   = watch
	Way     = way
	Layout  = layout
)

// Wanted, EpisodeOf, MovedBy and LayoutOf are those of the loop.
func Wanted(s *state.ServerView) rt.Server                    { return wanted(s) }
func EpisodeOf(n *state.NodeView) Episode                     { return episodeOf(n) }
func MovedBy(actions []*v1alpha1.RTAction) map[types.UID]bool { return movedBy(actions) }
func (p planner) Choose() (answer, bool)                      { return p.choose() }
func (s scene) Next() step                                    { return s.next() }
func (w way) Next() (orchestration.Request, time.Time, bool)  { return w.next() }
func (e Episode) In(stage, message string, now time.Time, o Options) Episode {
	return e.in(stage, message, now, o)
}
func (w watch) Sure(o Options, now time.Time) bool { return w.sure(o, now) }
func (w watch) Look(n *state.NodeView, pressed bool, o Options, now time.Time) (watch, []AffectedContainer) {
	return w.look(n, pressed, o, now)
}

// Note records the departing pods.
func Note(ctx context.Context, c client.Client, a answer) error {
	return visit{ladder: &ladder{Dependencies: Dependencies{Client: c}}}.note(ctx, a.Leaving)
}

// Told looks at a node whose pressure has such answers, one look after the other. It returns how many actions are remembered
// then as reported.
func Told(to karpenterevents.Recorder, looks ...[]*v1alpha1.RTAction) (remembered []int) {
	s := scene{Episode: Episode{Active: true, Stage: SourceMisses, Begun: time.Unix(1, 0)}}
	v := visit{ladder: &ladder{Dependencies: Dependencies{Recorder: to}}, snapshot: state.New(state.Options{}).Snapshot(), node: &state.NodeView{Name: "a"}, memory: &memory{}, scene: s}
	defer v.memory.count(Episode{})
	for _, answers := range looks {
		v.scene.Answers = answers
		v.report()
		remembered = append(remembered, len(v.memory.told))
	}
	return remembered
}

// Fits is what the planner asks nodes, from a client.
func Fits(ctx context.Context, c client.Client) func(node string, pods ...*state.PodView) bool {
	m := machinesOf(ctx, c)
	return m.fit
}

// Condition is the episode as it is stored.
func (e Episode) Condition() metav1.Condition { return e.condition() }

// Overfills tells whether a pod would find no more room where it goes than there is where it comes from.
func (p planner) Overfills(uid types.UID) bool {
	p.prepare()
	p.turn(p.groups()[0])
	d, ok := p.destination(uid)
	return !ok || p.crowdsNode(uid, d.Node)
}
