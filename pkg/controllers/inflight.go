package controllers

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

const (
	// lookout is how long the provisioner may take to decide on a pod, beyond its longest batch: it is told of one every 10 s, and then plans.
	lookout = 20 * time.Second
	// hopeful is how long a pod that was planned onto a node counts as on its way there. The
	// provisioner takes a plan back when it fails; one that it never revisits must not block others.
	// It is also how long the provisioner is waited for while it may not decide, as a NodeClaim has no machine yet.
	hopeful = 2 * time.Minute
)

// flights are the nodes that may still come for pending pods, as the provisioner sees it.
type flights struct {
	client  client.Reader
	cluster *state.Cluster
	clock   clock.PassiveClock
	// lastMissed is when the provisioner may last have decided without a NodePool, as its overlays were not evaluated yet.
	lastMissed func() time.Time
	// patience is how long a pod is left to wait for machines that are opened for it, as none of them may ever join.
	patience time.Duration
	// batch is for how long the provisioner may collect pods before it decides on them.
	batch time.Duration

	lock  sync.Mutex
	known map[types.NamespacedName]flight
	asked map[types.NamespacedName]question
}

// flight is a place that a pod is planned onto and, where that has gone, the next.
type flight struct {
	pod types.UID
	// planned is when the pod was first found a place since there was none, be it on a node that was there.
	planned time.Time
	// since is from when patience counts, coming when a node that had not joined yet was seen last, and seen when any was.
	since, coming, seen time.Time
}

// question is about a pod that the provisioner of this process has not decided on.
type question struct {
	pod types.UID
	// first is when it was asked first, seen when last, and from is since when the provisioner may decide.
	first, from, seen time.Time
}

func newFlights(c client.Reader, cluster *state.Cluster, lastMissed func() time.Time, clk clock.PassiveClock, patience, batch time.Duration) *flights {
	return &flights{
		client: c, cluster: cluster, lastMissed: lastMissed, clock: clk, patience: patience, batch: batch,
		known: map[types.NamespacedName]flight{}, asked: map[types.NamespacedName]question{},
	}
}

// mayCome tells whether a node may still come for a pending pod.
func (f *flights) mayCome(ctx context.Context, pod *corev1.Pod) bool {
	// A decision without a NodePool is none. Only the first decision on a pod is known, so it is waited for as if none had been made.
	decided := f.cluster.PodSchedulingDecisionTime(client.ObjectKeyFromObject(pod)).After(f.lastMissed().Add(lookout))
	return f.comes(ctx, pod) || !decided && !podutils.IsOwnedByDaemonSet(pod) && f.undecided(ctx, pod)
}

// comes tells whether one does, by what the provisioner has planned.
func (f *flights) comes(ctx context.Context, pod *corev1.Pod) bool {
	key := client.ObjectKeyFromObject(pod)
	planned := f.cluster.PodSchedulingSuccessTime(key)
	if claim := f.cluster.PodNodeClaimMapping(key); claim != "" && f.cluster.NodeClaimExists(claim) {
		opened, there := f.node(ctx, claim)
		return f.clock.Since(f.since(pod, planned, opened, there)) < f.patience
	}
	return !planned.IsZero() && (f.clock.Since(planned) < hopeful || f.between(pod, planned))
}

// undecided tells whether the provisioner is still to decide on a pod. What an earlier leader's had decided this one's does not know, nor when a gate was taken off
// the pod; so it counts from when this process first asked, however old the pod is. Nobody waits for ever for a provisioner that never decides.
func (f *flights) undecided(ctx context.Context, pod *corev1.Pod) bool {
	synced := f.cluster.Synced(ctx)
	f.lock.Lock()
	defer f.lock.Unlock()
	now, key := f.clock.Now(), client.ObjectKeyFromObject(pod)
	maps.DeleteFunc(f.asked, func(_ types.NamespacedName, o question) bool { return now.Sub(o.seen) >= f.patience+hopeful })
	o, known := f.asked[key]
	if !known || o.pod != pod.UID {
		o = question{pod: pod.UID, first: now, from: now}
	}
	if !synced && now.Sub(o.first) < hopeful {
		o.from = now
	}
	if missed := f.lastMissed(); missed.After(o.from) && now.Sub(o.first) < hopeful {
		o.from = missed
	}
	o.seen = now
	f.asked[key] = o
	return now.Sub(o.from) < f.batch+lookout
}

// node tells of one when it was asked for, and whether it is there by now. One that cannot be read was asked for just now.
func (f *flights) node(ctx context.Context, claim string) (opened time.Time, there bool) {
	o := &karpenterv1.NodeClaim{}
	if err := f.client.Get(ctx, types.NamespacedName{Name: claim}, o); err != nil {
		return f.clock.Now(), false
	}
	return o.CreationTimestamp.Time, o.StatusConditions().IsTrue(karpenterv1.ConditionTypeInitialized)
}

// since is from when a pod waits for the node that it is planned onto: from when that was opened, or the pod made, however long ago it was first planned onto
// another that was there, and whichever leader's provisioner it was that planned it. Of several that come one after another, as none of them joins, the first counts.
func (f *flights) since(pod *corev1.Pod, planned, opened time.Time, there bool) time.Time {
	f.lock.Lock()
	defer f.lock.Unlock()
	now, key, first := f.clock.Now(), client.ObjectKeyFromObject(pod), planned
	if made := pod.CreationTimestamp.Time; !there && opened.Before(made) {
		first = made
	} else if !there || opened.After(first) {
		first = opened
	}
	maps.DeleteFunc(f.known, func(_ types.NamespacedName, o flight) bool { return now.Sub(o.seen) >= f.patience })
	o, known := f.known[key]
	if !known || o.pod != pod.UID || !o.planned.Equal(planned) {
		o = flight{pod: pod.UID, planned: planned, since: first}
	}
	if !there {
		if opened.Sub(o.coming) >= f.patience {
			o.since = first
		}
		o.coming = now
	}
	o.seen = now
	f.known[key] = o
	return o.since
}

// between tells whether a pod is between two nodes: the one that was opened for it has gone before it joined, only just now, and the provisioner looks
// for the next. That counts from when the first was opened, too.
func (f *flights) between(pod *corev1.Pod, planned time.Time) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	o, known := f.known[client.ObjectKeyFromObject(pod)]
	return known && o.pod == pod.UID && o.planned.Equal(planned) && f.clock.Since(o.coming) < hopeful && f.clock.Since(o.since) < f.patience
}
