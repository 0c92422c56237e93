package rtruntime

import (
	"context"
	"errors"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// mckubes keeps what a McKube promises to its containers: templates of claims for pods to come, claims
// for those that came before it, and its status.
type mckubes struct {
	Dependencies
	outdated *sightings
	// placed are the pods that are on their cores and whose agents have not said so yet.
	placed    *sightings
	lostRaces *lostRaces
	pace      *pace
	// statuses are the versions that statuses were written over.
	statuses *superseded
	refused  *refusedContainers
}

func newMcKubes(d Dependencies) *mckubes {
	return &mckubes{Dependencies: d, outdated: newSightings(), placed: newSightings(), lostRaces: newLostRaces(),
		pace: newPace(), statuses: newSuperseded(resourceVersion), refused: newRefusedContainers()}
}

// Register adds the loop to the manager.
func (c *mckubes) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("rtruntime.mckube").
		WatchesRawSource(onChange(c.Store, everyMcKube, newWakes(c.Store.Snapshot).pick)).
		Watches(&resourcev1.ResourceClaimTemplate{}, handler.EnqueueRequestForOwner(m.GetScheme(), m.GetRESTMapper(), &mcv1.McKube{}, handler.OnlyControllerOwner())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: timeout}).
		Complete(c)
}

func everyMcKube(s *state.Snapshot) []reconcile.Request {
	var out []reconcile.Request
	for m := range s.McKubes() {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	}
	return out
}

// mckubeStep does one thing for a McKube, and says when to look again at the latest; 0 is when something changes.
type mckubeStep func(*mckubes, context.Context, *governance) (time.Duration, error)

// mckubeSteps are in the order in which a container is served. Each may be repeated, and one that fails
// keeps back those behind it but not the status, which says why.
var mckubeSteps = []mckubeStep{
	(*mckubes).ensureTemplate, (*mckubes).fillInNode, (*mckubes).giveWay, (*mckubes).adopt, (*mckubes).grow, (*mckubes).annotate,
}

// Reconcile serves one McKube.
func (c *mckubes) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if c.Store.Synced() != nil {
		return reconcile.Result{RequeueAfter: unsynced}, nil //nolint:nilerr // to be early is no failure
	}
	snapshot := c.Store.Snapshot()
	m, ok := snapshot.McKube(request.Namespace, request.Name)
	if !ok || m.DeletionTimestamp != nil {
		c.outdated.forget(request.NamespacedName)
		c.placed.forget(request.NamespacedName)
		c.pace.forget(request.NamespacedName)
		c.statuses.forget(request.NamespacedName)
		c.refused.record(request.NamespacedName, nil, nil)
	}
	switch {
	case !ok:
		return reconcile.Result{}, nil
	case m.DeletionTimestamp != nil:
		return settled(c.finalize(ctx, snapshot, m))
	case !slices.Contains(m.Finalizers, mcv1.Finalizer):
		return settled(reconcile.Result{}, c.addFinalizer(ctx, m)) // the change wakes the loop again
	}
	g := govern(snapshot, m)
	served, err := settled(c.serve(ctx, g))
	c.recordRefusals(request.NamespacedName, g)
	wait, failed := c.report(ctx, g, err == nil) // after an error the controller does not know when to look again
	reported, failed := settled(reconcile.Result{RequeueAfter: wait}, failed)
	return reconcile.Result{RequeueAfter: earliest(served.RequeueAfter, reported.RequeueAfter)}, errors.Join(err, failed)
}

func (c *mckubes) serve(ctx context.Context, g *governance) (reconcile.Result, error) {
	var soonest time.Duration
	for _, do := range mckubeSteps {
		after, err := do(c, ctx, g)
		if err != nil {
			return reconcile.Result{}, err
		}
		soonest = earliest(soonest, after)
	}
	return reconcile.Result{RequeueAfter: soonest}, nil
}

// governance is a McKube and the containers that it governs, as one snapshot has them.
type governance struct {
	snapshot *state.Snapshot
	mckube   *mcv1.McKube
	parts    []part
	// rivals are the older McKubes that govern containers which this one would.
	rivals []*mcv1.McKube
	// blocked are the gates that only an attempt has shown to be closed, by ID of the server.
	blocked map[string]state.Gate
	// taken is the name of a claim template that this McKube does not own and that has the name of its template.
	taken string
}

// part is one governed container.
type part struct {
	state.Governed
	pod    *state.PodView
	node   *state.NodeView   // nil while the pod is on none with real-time cores
	server *state.ServerView // nil while the node knows no such server
}

func govern(s *state.Snapshot, m *mcv1.McKube) *governance {
	g := &governance{snapshot: s, mckube: m, blocked: map[string]state.Gate{}}
	for _, pod := range s.PodsFor(m) {
		for _, governed := range pod.Governed {
			switch {
			case pod.Deleting || pod.Finished():
			case governed.McKube.UID == m.UID:
				g.parts = append(g.parts, newPart(s, pod, governed))
			case slices.ContainsFunc(governed.Rivals, func(r *mcv1.McKube) bool { return r.UID == m.UID }):
				g.rivals = append(g.rivals, governed.McKube)
			}
		}
	}
	return g
}

func newPart(s *state.Snapshot, pod *state.PodView, governed state.Governed) part {
	p := part{Governed: governed, pod: pod}
	if node, ok := s.NodeView(pod.NodeName); ok && pod.NodeName != "" {
		p.node = node
		p.server, _ = node.Server(governed.Server.ID)
	}
	return p
}

// pods are the pods of the parts, each once.
func (g *governance) pods() []*state.PodView {
	var out []*state.PodView
	seen := map[types.UID]bool{}
	for _, p := range g.parts {
		if !seen[p.pod.UID] {
			seen[p.pod.UID] = true
			out = append(out, p.pod)
		}
	}
	return out
}
