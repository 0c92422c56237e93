package migration_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

// court allows everything, unless it was told a reason not to. Decisions are made side by side.
type court struct {
	policy *v1alpha1.MigrationPolicy
	denies string
	lock   sync.Mutex
	asked  []policy.Question
}

func (c *court) For(context.Context, *corev1.Pod) (*v1alpha1.MigrationPolicy, error) {
	return c.policy, nil
}

func (c *court) Decide(_ context.Context, q policy.Question) (v1alpha1.MigrationDecision, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.asked = append(c.asked, q)
	return v1alpha1.MigrationDecision{Allowed: c.denies == "", Reason: c.denies}, nil
}

// questions that it was asked.
func (c *court) questions() []policy.Question {
	c.lock.Lock()
	defer c.lock.Unlock()
	return slices.Clone(c.asked)
}

// reconciler is the loop over PodMigrations of a process.
func (p *process) reconciler() *migration.Reconciler {
	return migration.NewReconciler(migration.ReconcilerDependencies{
		Dependencies: p.dependencies(), Actions: p.queue, Rooms: p.rooms, Load: p.measured, Threshold: 0.85,
	})
}

// rooms are the town's nodes, of which b has the most left.
func (w *town) rooms() map[string]placement.Room {
	out := map[string]placement.Room{}
	list := &corev1.NodeList{}
	w.must(w.api.List(w.Context(), list))
	for _, n := range list.Items {
		if !strings.HasPrefix(n.Name, w.name("")) {
			continue // of another town
		}
		left := map[string]string{w.name("a"): "2", w.name("b"): "8"}[n.Name]
		if left == "" {
			left = "4"
		}
		out[n.Name] = placement.Room{Allocatable: amounts("10"), Available: amounts(left)}
	}
	return out
}

// measured is how much of a node is in use, where that is known.
func (w *town) measured(node string) (used float64, known bool) {
	used, known = w.load[strings.TrimPrefix(node, w.namespace+"-")]
	return used, known
}

func amounts(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n), corev1.ResourceMemory: resource.MustParse(n + "Gi")}
}

// asks creates a PodMigration of a pod.
func (w *town) asks(pod string, change ...func(*v1alpha1.PodMigration)) *v1alpha1.PodMigration {
	w.Helper()
	o := &v1alpha1.PodMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "move-" + pod},
		Spec:       v1alpha1.PodMigrationSpec{PodName: pod, Timeout: &metav1.Duration{Duration: 3 * moving}},
	}
	for _, f := range change {
		f(o)
	}
	w.must(w.api.Create(w.Context(), o))
	return o
}

func by(s v1alpha1.MigrationStrategy) func(*v1alpha1.PodMigration) {
	return func(o *v1alpha1.PodMigration) { o.Spec.Strategy = s }
}

// moves are the PodMigrations of the town, by name.
func (w *town) moves() []v1alpha1.PodMigration {
	w.Helper()
	list := &v1alpha1.PodMigrationList{}
	w.must(w.api.List(w.Context(), list, client.InNamespace(w.namespace)))
	return list.Items
}

// move is the only PodMigration.
func (w *town) move() *v1alpha1.PodMigration {
	w.Helper()
	list := w.moves()
	if len(list) != 1 {
		w.Fatalf("%d PodMigrations", len(list))
	}
	return &list[0]
}

// loop lets the loops over PodMigrations and gates go on.
func (p *process) loop() error {
	p.Helper()
	for _, o := range p.moves() {
		if _, err := p.migrations.Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&o)}); err != nil {
			return err
		}
	}
	gates := &migration.Gates{Client: p.client, API: p.reader}
	for _, pod := range p.pods() {
		if len(pod.Spec.SchedulingGates) == 0 {
			continue
		}
		if _, err := gates.Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pod)}); err != nil {
			return err
		}
	}
	return nil
}

// migrate goes on until every PodMigration is over: the controller lives until its death, and then another one goes on. Then
// nothing is reserved, gated or left over.
func (w *town) migrate(meanwhile func(turn int, p *process)) []v1alpha1.PodMigration {
	w.Helper()
	p := w.start()
	last := ""
	for turn := range 200 {
		if meanwhile != nil {
			meanwhile(turn, p)
		}
		err := p.turn()
		if err == nil {
			err = p.loop()
		}
		p = p.next(err)
		w.lonely()
		list := w.moves()
		last = ""
		for _, o := range list {
			if !o.Status.Phase.Over() {
				last += fmt.Sprintf("%s: %+v\n", o.Name, o.Status)
			}
		}
		if last == "" {
			p = p.next(p.turn())
			w.rest(p)
			return list
		}
	}
	for _, o := range w.actions(w.Context()) {
		last += fmt.Sprintf("%+v\n", o.Status)
	}
	w.Fatalf("it does not end: %s; %s", last, w.everyone())
	return nil
}

// rest expects that nothing is left of what was done.
func (w *town) rest(p *process) {
	w.Helper()
	p.free()
	w.start().free()
	for _, pod := range w.pods() {
		if len(pod.Spec.SchedulingGates) > 0 {
			w.Errorf("pod %s is gated: %v", pod.Name, pod.Spec.SchedulingGates)
		}
		if cost := pod.Annotations[corev1.PodDeletionCost]; cost != w.cost && pod.DeletionTimestamp == nil {
			w.Errorf("pod %s has deletion cost %s", pod.Name, cost)
		}
	}
	list := &v1alpha1.NodeCheckpointList{}
	w.must(w.api.List(w.Context(), list))
	if len(list.Items) > 0 {
		w.Errorf("%d NodeCheckpoints are left, of which the first is %+v", len(list.Items), list.Items[0].Status)
	}
}

// lonely expects that of a pod whose state goes along no two copies run: the source is stopped while the other one does.
func (w *town) lonely() {
	w.Helper()
	if w.agents == nil {
		return
	}
	running := 0
	for _, pod := range w.pods() {
		if pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !w.agents.stopped[pod.UID] {
			running++
		}
	}
	if running > w.agents.most {
		w.Errorf("%d pods run that have one state: %s", running, w.everyone())
	}
}

// everyone is "pod@node" of each pod that is not about to end.
func (w *town) everyone() string {
	w.Helper()
	var out []string
	for _, p := range w.pods() {
		if p.DeletionTimestamp == nil {
			out = append(out, p.Name+"@"+strings.TrimPrefix(p.Spec.NodeName, w.namespace+"-"))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// places are the nodes of the pods that run, sorted.
func (w *town) places() string {
	w.Helper()
	var out []string
	for _, p := range w.pods() {
		if p.DeletionTimestamp == nil && !strings.HasPrefix(p.Name, "stranger-") {
			out = append(out, strings.TrimPrefix(p.Spec.NodeName, w.namespace+"-"))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// rollout has the town's ReplicaSet be one of a Deployment, as far as its label goes, whose pods run on node a.
func (w *town) rollout(replicas int32) {
	w.Helper()
	for _, p := range w.pods() {
		w.finishDeletion(&p)
	}
	w.must(w.api.Delete(w.Context(), w.owner, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w.adopts = true
	labels := map[string]string{"app": "rt", appsv1.DefaultDeploymentUniqueLabelKey: "5d4f"}
	w.owner = w.replicaSetOf("rt-5d4f", replicas, labels)
	for i := range replicas {
		w.bind(w.make(), "a", int(i)%2)
	}
}

// govern plays the ReplicaSet controller: it adopts pods that it selects, and deletes what is one too many: those that are
// not ready first, then those that cost least, then those that became ready last.
func (w *town) govern() {
	w.Helper()
	if err := w.api.Get(w.Context(), client.ObjectKeyFromObject(w.owner), w.owner); err != nil || !w.adopts {
		return
	}
	var mine []corev1.Pod
	for _, p := range w.pods() {
		if p.DeletionTimestamp != nil {
			continue
		}
		selected := true
		for key, value := range w.owner.Spec.Selector.MatchLabels {
			selected = selected && p.Labels[key] == value
		}
		if metav1.GetControllerOf(&p) == nil && selected {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
			w.must(w.api.Update(w.Context(), &p))
		}
		if metav1.IsControlledBy(&p, w.owner) {
			mine = append(mine, p)
		}
	}
	cost := func(p corev1.Pod) int {
		n := 0
		_, _ = fmt.Sscan(p.Annotations[corev1.PodDeletionCost], &n)
		return n
	}
	slices.SortFunc(mine, func(a, b corev1.Pod) int {
		since, ready := readySince(a)
		other, too := readySince(b)
		switch {
		case ready != too && too:
			return -1
		case ready != too:
			return 1
		}
		return cmp.Or(cost(a)-cost(b), other.Compare(since))
	})
	for surplus := len(mine) - int(*w.owner.Spec.Replicas); surplus > 0 && !w.keeps; surplus-- {
		w.finishDeletion(&mine[surplus-1])
	}
}

// readySince is when a pod became ready, if it is.
func readySince(p corev1.Pod) (time.Time, bool) {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	if i < 0 {
		return time.Time{}, false
	}
	return p.Status.Conditions[i].LastTransitionTime.Time, true
}

// webhook is what the pod webhook would add to a pod that is created.
func (w *town) webhook(p *corev1.Pod) {
	for i, container := range p.Spec.Containers {
		if len(p.Spec.ResourceClaims) < len(p.Spec.Containers) && slices.Contains(w.containers, container.Name) {
			name, template := "rt-"+container.Name, "template"
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &template})
			p.Spec.Containers[i].Resources.Claims = []corev1.ResourceClaim{{Name: name}}
		}
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, mcv1.LabelRT, "x")
	for _, o := range w.moves() {
		if w.gating && v1alpha1.AwaitsReplacement(&o, p) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateMigration}}
		}
	}
}

// agents play those of the nodes, as far as states of containers go.
type agents struct {
	stopped map[any]bool
	// ordinary: threads have lost their policies on node b.
	ordinary bool
	// lax: what they have read back is not what was asked for.
	lax bool
	// most is how many pods with the state may run at once.
	most int
	// fails is the stage at which something goes wrong, slow for how many turns each stage takes.
	fails v1alpha1.CheckpointStage
	// cold: what the runtime makes of the archives begins anew, and it does not say that it restored it.
	cold bool
	// stuck: they do nothing. gone: the target's node is not there any longer.
	stuck, gone bool
	// awake: the source has not stayed stopped, as a user has resumed it.
	awake bool
	// anew: the source has ended, and its kubelet has begun it anew.
	anew bool
	// lapsed: the source's kubelet has ended what stood still for longer than its liveness probe bears, with what it had in memory.
	lapsed bool
}

func (w *town) checkpoints() {
	w.Helper()
	if w.agents == nil || w.agents.stuck {
		return
	}
	list := &v1alpha1.NodeCheckpointList{}
	w.must(w.api.List(w.Context(), list))
	for i := range list.Items {
		nc := &list.Items[i]
		before := nc.DeepCopy()
		w.side(nc)
		if !equality.Semantic.DeepEqual(before.Status, nc.Status) {
			w.must(client.IgnoreNotFound(w.api.Status().Update(w.Context(), nc)))
		}
	}
}

func (w *town) side(nc *v1alpha1.NodeCheckpoint) {
	now := metav1.NewMicroTime(w.clock.Now())
	stopped := &now
	if nc.Status.Source != nil && nc.Status.Source.StoppedTime != nil {
		stopped = nc.Status.Source.StoppedTime
	}
	archive := v1alpha1.CheckpointArchive{Container: "app", Bytes: 1 << 20, Digest: "sha256:" + strings.Repeat("a", 64)}
	if nc.Status.Source == nil {
		nc.Status.Source = &v1alpha1.CheckpointSide{State: v1alpha1.CheckpointWorking}
	}
	failed := v1alpha1.CheckpointSide{State: v1alpha1.CheckpointFailed, Message: "it went wrong"}
	switch stage := nc.Spec.Stage; {
	case stage == v1alpha1.StageDiscard:
		w.agents.stopped[nc.Spec.PodUID] = false
		nc.Status.Source.State = v1alpha1.CheckpointDiscarded
		if nc.Status.Target != nil && !w.agents.gone {
			nc.Status.Target.State = v1alpha1.CheckpointDiscarded
		}
	case (stage == v1alpha1.StageCheckpoint || stage == v1alpha1.StageTransfer) && (nc.DeletionTimestamp != nil || !w.clock.Now().Before(nc.Spec.Expires.Time)):
		w.agents.stopped[nc.Spec.PodUID] = false
		nc.Status.Source.State, nc.Status.Source.Message = v1alpha1.CheckpointDiscarded, "the containers run on: its time is over"
		if nc.Status.Target != nil {
			nc.Status.Target.State, nc.Status.Target.Message = v1alpha1.CheckpointDiscarded, "its time is over"
		}
	case w.lapses(nc):
		*nc.Status.Source = v1alpha1.CheckpointSide{State: v1alpha1.CheckpointFailed, Message: "its containers were begun anew"}
	case !w.there(nc) && (stage == v1alpha1.StageCheckpoint || stage == v1alpha1.StageTransfer) && stage != w.agents.fails:
		*nc.Status.Source = v1alpha1.CheckpointSide{State: v1alpha1.CheckpointFailed, Message: "its containers are gone"}
		if nc.Status.Target != nil && stage == v1alpha1.StageTransfer {
			nc.Status.Target.State = v1alpha1.CheckpointWorking
		}
	case stage == v1alpha1.StageRelease:
		w.agents.stopped[nc.Spec.PodUID] = true
		for _, side := range []*v1alpha1.CheckpointSide{nc.Status.Source, nc.Status.Target} {
			if side != nil && side.State != v1alpha1.CheckpointDiscarded { // which is the last word
				side.State = v1alpha1.CheckpointReleased
			}
		}
	case stage == v1alpha1.StageHandOver && stage != w.agents.fails:
		nc.Status.Source.State = v1alpha1.CheckpointReleased
		w.restored(nc)
	case stage == w.agents.fails && stage == v1alpha1.StageCheckpoint:
		*nc.Status.Source = failed
	case stage == w.agents.fails:
		w.stirs(nc)
		nc.Status.Target = &failed
	case stage == v1alpha1.StageCheckpoint && nc.Status.Source.State == v1alpha1.CheckpointFailed:
	case stage == v1alpha1.StageCheckpoint && w.agents.anew:
		*nc.Status.Source = v1alpha1.CheckpointSide{State: v1alpha1.CheckpointFailed, Message: ended, Disturbance: v1alpha1.CheckpointEnded}
	case stage == v1alpha1.StageCheckpoint:
		w.agents.stopped[nc.Spec.PodUID] = true
		*nc.Status.Source = v1alpha1.CheckpointSide{State: v1alpha1.CheckpointCheckpointed, StoppedTime: stopped, ProgressTime: &now, Archives: []v1alpha1.CheckpointArchive{archive}}
	case nc.Status.Target == nil:
		w.stirs(nc)
		archive.Image = "mainspring.local/checkpoint/" + string(nc.UID) + ":app"
		nc.Status.Target = &v1alpha1.CheckpointSide{State: v1alpha1.CheckpointTransferred, ProgressTime: &now, Archives: []v1alpha1.CheckpointArchive{archive}}
	default:
		w.stirs(nc)
		w.restored(nc)
	}
}

// there tells whether nothing has become of the source.
func (w *town) there(nc *v1alpha1.NodeCheckpoint) bool {
	return slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return p.UID == nc.Spec.PodUID })
}

// restored says which container the runtime has restored.
func (w *town) restored(nc *v1alpha1.NodeCheckpoint) {
	for _, p := range w.pods() {
		if nc.Status.Target != nil && p.Annotations[mcv1.AnnotationReplaces] == string(nc.Spec.PodUID) && p.Status.Phase == corev1.PodRunning && !w.agents.cold {
			nc.Status.Target.Archives[0].Restored = "c-" + p.Name
		}
	}
}

// able has the agents of both nodes say that they can checkpoint and restore.
func (w *town) able() {
	w.Helper()
	w.agents = &agents{stopped: map[any]bool{}, most: len(w.pods())}
	for _, name := range []string{"a", "b"} {
		n := &corev1.Node{}
		w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(name)}, n))
		o := &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}}}
		w.must(w.api.Create(w.Context(), o))
		o.Status.Checkpoint = &v1alpha1.CheckpointCapability{Driver: "cri", Checkpoints: true, Restores: true}
		w.must(w.api.Status().Update(w.Context(), o))
	}
}

// realtime is how many threads of a pod have a real-time policy on a node.
func (w *town) realtime(node string) int32 {
	if w.agents.ordinary && node == "b" {
		return 1
	}
	return 2
}

// apply has the agents say that what runs has its budgets and cores.
func (w *town) apply() {
	w.Helper()
	if w.agents == nil {
		return
	}
	pods := w.pods()
	for _, name := range []string{"a", "b"} {
		o := &v1alpha1.RTNode{}
		w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(name)}, o))
		before := o.Status.DeepCopy()
		o.Status.Servers = nil
		for _, p := range pods {
			if p.Spec.NodeName == o.Name && p.Status.Phase == corev1.PodRunning && w.agents.lax {
				o.Status.Servers = append(o.Status.Servers, v1alpha1.RTServerStatus{PodUID: p.UID, Container: "app", PeriodUs: 7, Cores: []int32{63}, Level: "low"})
			} else if p.Spec.NodeName == o.Name && p.Status.Phase == corev1.PodRunning {
				o.Status.Servers = append(o.Status.Servers, v1alpha1.RTServerStatus{
					PodUID: p.UID, Container: "app", BudgetUs: 40_000, PeriodUs: 100_000, Level: "low", RealtimeThreads: w.realtime(name),
				})
			}
		}
		if !equality.Semantic.DeepEqual(before, &o.Status) {
			w.must(w.api.Status().Update(w.Context(), o))
		}
	}
}
