package migration_test

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// errand is an action without a PodMigration, as the ladder's are.
type errand struct {
	name string
	town func(*town)
	ask  func(*orchestration.Request)
	// strategy by which the pod goes, whether it takes its state along, what comes of it, and who is evicted over it.
	strategy  v1alpha1.MigrationStrategy
	state     string
	phase     v1alpha1.MigrationPhase
	says      string
	places    string
	evictions int
	deaths    bool
}

// wants has the pod's McKube say how it goes, and a MigrationPolicy what else holds.
func wants(by mcv1.MigrationKind, policy v1alpha1.MigrationPolicySpec) func(*town) {
	return func(w *town) {
		m := w.mckube()
		m.Spec.Migration = &mcv1.Migration{Policy: by}
		w.must(w.api.Update(w.Context(), m))
		w.judge.policy = &v1alpha1.MigrationPolicy{Spec: policy}
	}
}

// each does one after the other.
func each(list ...func(*town)) func(*town) {
	return func(w *town) {
		for _, f := range list {
			f(w)
		}
	}
}

func rollout(w *town) { w.rollout(1) }

// limping is a Deployment of which one pod is not ready.
func limping(w *town) {
	w.rollout(2)
	w.sicken(1)
}

func (e errand) tell(t *testing.T, dieAt int) *town {
	t.Helper()
	w := newTown(t, 1)
	w.gating = true
	if e.town != nil {
		e.town(w)
	}
	r := w.request(w.first())
	r.Timeout = 3 * moving
	if e.ask != nil {
		e.ask(&r)
	}
	w.writes, w.dieAt, w.dieBefore = 0, dieAt, true
	p, _ := w.submit(w.start(), r)
	for range 20 {
		if len(w.moves()) > 0 {
			break
		}
		if err := p.turn(); errors.Is(err, errDied) {
			p = w.start()
		} else {
			w.must(err)
		}
	}
	w.migrate(nil)
	o := w.move()
	state := ""
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState); c != nil {
		state = string(c.Status)
	}
	if o.Status.Strategy != e.strategy || o.Status.Phase != e.phase || state != e.state || !strings.Contains(o.Status.Message, e.says) {
		t.Errorf("it went by %q (state %q) and is %s: %s", o.Status.Strategy, state, o.Status.Phase, o.Status.Message)
	}
	if got := w.places(); got != cmp.Or(e.places, "b") || len(w.evicted) != e.evictions {
		t.Errorf("evicted %v, left %s", w.evicted, w.everyone())
	}
	return w
}

// The pod of an action moves by the strategy that a PodMigration with the same request would use: by what McKube and policy say, with a
// second pod before it where that may be, and never without a state that it must have.
func TestAnActionGoesTheWayOfAPodMigration(t *testing.T) {
	t.Parallel()
	beside := func(r *orchestration.Request) { r.Beside = true }
	for _, e := range []errand{
		{name: "of-a-deployment", town: rollout, strategy: v1alpha1.StrategyRestart, phase: "Succeeded", evictions: 1},
		{name: "of-a-deployment-beside", town: rollout, ask: beside, strategy: v1alpha1.StrategySurge, phase: "Succeeded", says: "in place of", deaths: true},
		{name: "surge-by-policy", town: each(rollout, func(w *town) {
			w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{Strategy: v1alpha1.StrategySurge}}
		}), strategy: v1alpha1.StrategyRestart, phase: "Succeeded", evictions: 1},
		{name: "of-a-replicaset", strategy: v1alpha1.StrategyRestart, phase: "Succeeded", evictions: 1},
		{name: "of-a-replicaset-beside", ask: beside, phase: "RolledBack", says: "another pod was to serve before it goes", places: "a"},
		{name: "not-beside-a-pod-that-is-not-ready", town: limping, ask: beside, phase: "RolledBack", says: "another pod was to serve before it goes", places: "a a"},
		{name: "of-a-deployment-with-a-pod-that-is-not-ready", town: limping, strategy: v1alpha1.StrategyRestart, phase: "Succeeded", evictions: 1, places: "a b"},
		{name: "restart-by-mckube", town: each(rollout, wants(mcv1.MigrationRestart, v1alpha1.MigrationPolicySpec{})), strategy: v1alpha1.StrategyRestart,
			phase: "Succeeded", evictions: 1},
		{name: "evict-by-policy", town: each(rollout, func(w *town) {
			w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{Strategy: v1alpha1.StrategyEvict}}
		}), strategy: v1alpha1.StrategyRestart, phase: "Succeeded", evictions: 1},
		{name: "with-its-state", town: each(rollout, (*town).able, wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{RequireState: true})),
			strategy: v1alpha1.StrategyCheckpoint, state: "True", phase: "Succeeded", deaths: true},
		{name: "without-its-state", town: each(rollout, wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{})), ask: beside,
			strategy: v1alpha1.StrategySurge, state: "False", phase: "SucceededWithoutState"},
		{name: "not-without-its-state", town: each(rollout, wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{RequireState: true})),
			phase: "RolledBack", says: "its state cannot come along: the agent of node", places: "a"},
		{name: "not-without-its-state-by-policy", town: func(w *town) {
			w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{Strategy: v1alpha1.StrategyCheckpoint, RequireState: true}}
		}, phase: "RolledBack", says: "its state cannot come along", places: "a"},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			w := e.tell(t, 0)
			if !e.deaths || t.Failed() {
				return
			}
			for _, at := range sampling.Points(t, 1, w.writes, deathsPerStory) {
				t.Run(fmt.Sprintf("dies-%d", at), func(t *testing.T) {
					t.Parallel()
					e.tell(t, at)
				})
			}
		})
	}
}

// What it is refused for stands on its record, under the same word as for a PodMigration.
func TestWhatAnActionIsRefusedForIsOnRecord(t *testing.T) {
	t.Parallel()
	for reason, town := range map[string]func(*town){
		"GovernedByName":  (*town).named,
		"StateImpossible": wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{RequireState: true}),
	} {
		w := newTown(t, 1)
		town(w)
		w.play(nil, w.request("rt-1"))
		if c := meta.FindStatusCondition(w.move().Status.Conditions, v1alpha1.ConditionMigrationAdmitted); c == nil || c.Status != "False" || c.Reason != reason {
			t.Errorf("%s: %+v", reason, c)
		}
	}
}

// A policy may come to require the state while the action waits for its turn. The action follows it: the strategy is chosen until
// something is done.
func TestAStateThatIsRequiredMeanwhileIsKept(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	one := int32(1)
	limits := &v1alpha1.MigrationLimits{PerNamespace: &one}
	w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{Limits: limits}}
	other := w.asks("nobody")
	other.Status.Phase = v1alpha1.MigrationRestoring
	w.must(w.api.Status().Update(w.Context(), other))
	action := w.play(func(turn int, _ *process) {
		if turn == 6 {
			wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{RequireState: true})(w)
		}
	}, w.request("rt-1"))[0]
	if action.Status.Phase != "RolledBack" || !strings.Contains(action.Status.Message, "its state cannot come along") || len(w.evicted) > 0 {
		t.Errorf("%s: %s; evicted %v", action.Status.Phase, action.Status.Message, w.evicted)
	}
}

// How a pod would go is said before it is asked for: the same as happens then.
func TestPassage(t *testing.T) {
	t.Parallel()
	must := wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{RequireState: true})
	may := wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{})
	unable := func(w *town) {
		o := &v1alpha1.RTNode{}
		o.Name = w.name("b")
		w.must(w.api.Delete(w.Context(), o))
	}
	for name, c := range map[string]struct {
		town      func(*town)
		somewhere bool
		want      string
	}{
		"of a Deployment":              {rollout, false, "Surge anywhere"},
		"of a ReplicaSet":              {nil, false, "Restart anywhere"},
		"beside one that is not ready": {limping, false, "Restart anywhere"},
		"where all others are ready":   {func(w *town) { w.rollout(2) }, false, "Surge anywhere"},
		"not ready itself":             {func(w *town) { w.rollout(2); w.sicken(0) }, false, "Surge anywhere"},
		"by name":                      {(*town).named, true, "not: McKube rt governs the pod by its name"},
		"with its state":               {each(rollout, (*town).able, must), false, "Checkpoint bound"},
		"with its state, if possible":  {each(rollout, (*town).able, may), false, "Checkpoint"},
		"not with its state":           {each(rollout, may), false, "Surge anew anywhere"},
		"never without":                {each(rollout, must), true, "not: its state cannot come along"},
		"not to there without":         {each(rollout, (*town).able, unable, must), false, "not: its state cannot come along: the agent of node"},
		"but perhaps to another":       {each(rollout, (*town).able, unable, must), true, "Checkpoint bound"},
		"of another namespace":         {elsewhereOnly, false, "not: pods of namespace town-"},
		"of a ReplicaSet that is gone": {func(w *town) { w.must(w.api.Delete(w.Context(), w.owner)) }, true, "not: ReplicaSet rt, which made it, is gone"},
	} {
		w := newTown(t, 1)
		if c.town != nil {
			c.town(w)
		}
		p := w.start()
		pod := w.pods()[0]
		view, _ := p.store.Snapshot().Pod(pod.UID)
		node := w.name("b")
		if c.somewhere {
			node = ""
		}
		way, err := p.dependencies().Passage(t.Context(), view, node)
		w.must(err)
		got := string(way.Strategy)
		if way.Stateless != "" {
			got += " anew"
		}
		if way.Bound {
			got += " bound"
		}
		if way.Anywhere {
			got += " anywhere"
		}
		if way.Veto != "" {
			got = "not: " + way.Veto
		}
		if got != c.want && (way.Veto == "" || !strings.HasPrefix(got, c.want)) || way.Veto == "" && way.Timeout == 0 {
			t.Errorf("%s: %q (%s), want %q", name, got, way.Timeout, c.want)
		}
	}
}
