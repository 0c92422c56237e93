package provisioning_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	karpprovisioning "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	karpstate "sigs.k8s.io/karpenter/pkg/controllers/state"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/provisioning"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

// fate is what befalls a process at one of its writes to the API server.
type fate string

const (
	none fate = ""
	// dies before the write, or when it was made; losesReply: it was made, and the process is told an error.
	diesBefore fate = "dies before"
	diesAfter  fate = "dies after"
	losesReply fate = "loses the reply of"
)

// process is a controller on the site, with caches of its own. Karpenter's own loops run in it too.
type process struct {
	*site
	queue     *orchestration.Queue
	store     *state.Store
	cluster   *karpstate.Cluster
	lifecycle *lifecycle.Controller
	registrar reconcile.Reconciler
	keeper    reconcile.Reconciler
	devices   *deviceallocation.Controller
	virtual   *virtualpods.Cache
	// provisioner is Karpenter's, whose loop does not run.
	provisioner *karpprovisioning.Provisioner
	seen        map[types.UID]client.Object
	nominated   map[string]bool

	writes, at int
	fate       fate
	dead       bool
	// ordering is called while a NodeClaim is being created.
	ordering func()
}

// NominateNodeForPod implements provisioning.Nominator.
func (p *process) NominateNodeForPod(_ context.Context, providerID string) {
	p.nominated[providerID] = true
}

// spawn starts a process that knows nothing.
func (s *site) spawn() *process {
	s.Helper()
	s.processes++
	p := &process{site: s, seen: map[types.UID]client.Object{}, nominated: map[string]bool{}}
	guarded := p.guarded()
	cloud, registrar := simulatedCloud(s, s.api, s.clock)
	p.registrar = registrar
	cloud = riddled{cloud}
	later := clocktesting.NewFakeClock(s.clock.Now())
	p.store = state.New(state.Options{Clock: later})
	p.store.Complete()
	later.Step(time.Minute)
	told := recorder{s}
	p.devices = deviceallocation.NewController(s.api)
	p.cluster = karpstate.NewCluster(s.clock, s.api, cloud)
	p.virtual = virtualpods.NewVirtualPodCache(s.api)
	p.provisioner = karpprovisioning.NewProvisioner(guarded, told, cloud, p.cluster, s.clock, p.devices, p.virtual)
	hook := provisioning.NewCalibration(provisioning.CalibrationDependencies{
		Clock: s.clock, Client: p.byProvider(), Recorder: told, Provider: cloud, Store: p.store, Timeout: 5 * time.Minute,
	})
	p.lifecycle = lifecycle.NewController(s.clock, p.byProvider(), cloud, told, p.cluster, nodepoolhealth.NewState(), []karpcloud.NodeLifecycleHook{hook})
	var err error
	p.queue, err = orchestration.New(orchestration.Dependencies{
		Clock: s.clock, Client: guarded, Reader: guarded, Recorder: silent{}, Nodes: calm{}, Lease: client.ObjectKey{Namespace: s.namespace, Name: "queue"},
		Identity: fmt.Sprintf("process-%d", s.processes),
	})
	s.must(err)
	p.queue.Handle(rules.OpenNode, provisioning.NewOpenNode(provisioning.Dependencies{
		Clock: s.clock, Client: guarded, Reader: guarded, Provider: cloud, Provisioner: p.provisioner, Cluster: p.cluster, Store: p.store,
	}))
	p.keeper = provisioning.Keep(provisioning.KeeperDependencies{Clock: s.clock, Client: guarded, Reader: guarded, Cluster: p, Store: p.store})
	p.devices.Hydrate(s.ctx)
	s.must(p.look())
	return p
}

// mysterious is in the names of NodePools of which the cloud knows no machines.
const mysterious = "mysterious"

// riddled is a cloud that does not answer for some NodePools.
type riddled struct{ karpcloud.CloudProvider }

// GetInstanceTypes implements cloudprovider.CloudProvider.
func (r riddled) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*karpcloud.InstanceType, error) {
	if pool != nil && strings.Contains(pool.Name, mysterious) {
		return nil, errors.New("no answer")
	}
	return r.CloudProvider.GetInstanceTypes(ctx, pool)
}

// calm nodes are not disrupted by others; silent drops the Events of the queue.
type (
	calm   struct{}
	silent struct{}
)

func (calm) Disrupted(string) string                                                 { return "" }
func (calm) Allowed(context.Context) (map[string]orchestration.PoolAllowance, error) { return nil, nil }
func (silent) Publish(...events.Event)                                               {}

// recorder stores Karpenter's Events at once.
type recorder struct{ *site }

// Publish implements karpevents.Recorder.
func (r recorder) Publish(list ...karpevents.Event) {
	for _, e := range list {
		on, ok := e.InvolvedObject.(client.Object)
		if !ok {
			continue
		}
		kind := "Pod"
		if _, ok := on.(*karpv1.NodeClaim); ok {
			kind = "NodeClaim"
		}
		r.create(&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "e-", Namespace: max(on.GetNamespace(), metav1.NamespaceDefault)},
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: on.GetNamespace(), Name: on.GetName(), UID: on.GetUID()},
			Reason:         e.Reason, Message: e.Message, Type: e.Type,
		})
	}
}

// guarded is the process's connection to the API server. What it opens is counted also when nobody hears of it.
func (p *process) guarded() client.Client {
	counting := interceptor.NewClient(p.api, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			claim, orders := o.(*karpv1.NodeClaim)
			if during := p.ordering; orders && during != nil {
				p.ordering = nil
				during()
			}
			err := api.Create(ctx, o, opts...)
			if orders && err == nil {
				p.opened[claim.Name]++
			}
			return err
		},
	})
	return mortal.Guarded(counting, p.read, p.write)
}

func (p *process) read(do func() error) error {
	if p.dead {
		return mortal.ErrDied
	}
	return do()
}

func (p *process) write(do func() error) error {
	if p.dead {
		return mortal.ErrDied
	}
	p.writes++
	if p.writes != p.at {
		return do()
	}
	switch p.fate {
	case diesBefore:
		p.dead = true
		return mortal.ErrDied
	case diesAfter:
		p.dead = true
		_ = do() // nobody hears of it
		return mortal.ErrDied
	case losesReply:
		_ = do()
		return apierrors.NewTimeoutError("who knows", 1)
	}
	return do()
}

// byProvider finds Nodes by their provider ID, as Karpenter's cache does and no API server.
func (p *process) byProvider() client.Client {
	return interceptor.NewClient(p.api, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := client.ListOptions{}
			o.ApplyOptions(opts)
			nodes, ok := list.(*corev1.NodeList)
			if !ok || o.FieldSelector == nil || !strings.Contains(o.FieldSelector.String(), "spec.providerID=") {
				return api.List(ctx, list, opts...)
			}
			if err := api.List(ctx, nodes); err != nil {
				return err
			}
			wanted := strings.TrimPrefix(o.FieldSelector.String(), "spec.providerID=")
			nodes.Items = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return n.Spec.ProviderID != wanted })
			return nil
		},
	})
}

// turn lets the process, Karpenter, the cloud, kubelets and agents go on for a second.
func (p *process) turn() {
	p.Helper()
	for _, loop := range []func() error{p.decide, p.run} {
		p.must(p.look())
		if err := loop(); p.dead {
			return
		} else if err != nil && p.fate == none {
			p.Logf("bears %v", err)
		}
	}
	p.world()
	p.clock.Step(time.Second)
}

func (p *process) turns(n int) {
	p.Helper()
	for range n {
		p.turn()
	}
}

func (p *process) decide() error {
	_, err := p.queue.Loops()[0].Reconcile(p.ctx, reconcile.Request{})
	return err
}

func (p *process) run() error {
	list := &v1alpha1.RTActionList{}
	p.must(p.api.List(p.ctx, list))
	var failed []error
	for _, o := range list.Items {
		_, err := p.queue.Loops()[1].Reconcile(p.ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: o.Name}})
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// world is everything but our controller: it lives on when that dies.
func (p *process) world() {
	p.Helper()
	p.must(p.look())
	for _, claim := range p.claims() {
		if _, err := p.lifecycle.Reconcile(p.ctx, claim.DeepCopy()); err != nil {
			p.Logf("Karpenter bears %v", err)
		}
		if _, err := p.registrar.Reconcile(p.ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: claim.Name}}); err != nil {
			p.Logf("the cloud bears %v", err)
		}
	}
	nodes := &corev1.NodeList{}
	p.must(p.api.List(p.ctx, nodes))
	for i := range nodes.Items {
		p.boot(&nodes.Items[i])
	}
}

// boot has a new node become ready, and its agent publish its cores; one that is being deleted ends.
func (p *process) boot(n *corev1.Node) {
	p.Helper()
	if !n.DeletionTimestamp.IsZero() {
		n.Finalizers = nil
		p.must(client.IgnoreNotFound(p.api.Update(p.ctx, n)))
		return
	}
	if n.Annotations[v1alpha1.AnnotationNodeClaim] == "" || len(n.Status.Conditions) > 0 {
		return
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	p.must(p.api.Status().Update(p.ctx, n))
	// The node controller of a cluster takes its taint away.
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") })
	p.must(p.api.Update(p.ctx, n))
	if cores := p.machineCores(n.Labels[corev1.LabelInstanceTypeStable]); len(cores) > 0 && !p.mute {
		p.agent(n, cores)
	}
}

// submit asks for a node, once the queue has begun.
func (p *process) submit(r orchestration.Request) string {
	p.Helper()
	p.must(p.decide())
	t, err := p.queue.Submit(p.ctx, r)
	p.must(err)
	return t.Name
}

// kinds of machine that NodeClaims were launched as.
func (p *process) kinds() []string {
	var out []string
	for _, c := range p.claims() {
		out = append(out, c.Labels[corev1.LabelInstanceTypeStable])
	}
	return out
}

func (p *process) nominations() []string { return slices.Sorted(maps.Keys(p.nominated)) }

// keep has the loop that looks after opened nodes look at them.
func (p *process) keep() {
	p.Helper()
	p.must(p.look())
	_, err := p.keeper.Reconcile(p.ctx, reconcile.Request{})
	p.must(err)
}
