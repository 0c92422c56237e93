package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mainspring-rt/mainspring/pkg/apis"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/informer"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
	"github.com/mainspring-rt/mainspring/test/bench/report"
)

const (
	fillTimeout    = 15 * time.Minute
	rebuildTimeout = 2 * time.Minute
	// writers fill the API server at once.
	writers = 16
)

// measureRebuild fills a real API server with the cluster and measures how long a process that starts
// takes until its state answers.
func measureRebuild(ctx context.Context, full size, l load) ([]report.Figure, error) {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	options := localplane.Options{Progress: os.Stderr}
	var err error
	if options.Bin, err = toolchain.Ensure(ctx, os.Stderr, options.Tools()...); err != nil {
		return nil, err
	}
	plane, err := localplane.Start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	figures, err := rebuildOn(ctx, plane.RESTConfig(), full, l)
	return figures, errors.Join(err, plane.Stop())
}

func rebuildOn(ctx context.Context, config *rest.Config, full size, l load) ([]report.Figure, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server's own fairness is enough
	if err := errors.Join(v1alpha1.AddToScheme(scheme.Scheme), mcv1.AddToScheme(scheme.Scheme), apiextensionsv1.AddToScheme(scheme.Scheme)); err != nil {
		return nil, fmt.Errorf("registering API types: %w", err)
	}
	start := time.Now()
	if err := fill(ctx, config, full); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "  filled the API server in %s\n", time.Since(start).Round(time.Second))
	var seconds, cpu, weights []float64
	for round := range l.rounds {
		r, err := rebuild(ctx, config, full)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "  rebuild, round %d: %.2f s, %.2f s of CPU\n", round+1, r.wall.Seconds(), r.cpu.Seconds())
		seconds, cpu, weights = append(seconds, r.wall.Seconds()), append(cpu, r.cpu.Seconds()), append(weights, r.bytes/float64(full.containers))
	}
	return []report.Figure{
		{Key: "rebuild_s", Value: median(seconds), Goal: "< 5", Note: fmt.Sprintf("from an empty process to a state that answers, %v listed from a real API server on this machine; median of %d", full, l.rounds)},
		{Key: "rebuild_cpu_s", Value: median(cpu), Note: "CPU time of that process alone, which other work on the machine (the API server among it) disturbs least"},
		{Key: "bytes_per_container_with_informers", Value: median(weights), Note: "heap of that process: the state and the informers' whole objects, / containers"},
	}, nil
}

// rebuilt is one rebuild.
type rebuilt struct {
	wall, cpu time.Duration
	bytes     float64 // heap in use afterwards, less that before
}

// rebuild starts a manager with nothing but the state's informers and waits until the state answers.
func rebuild(ctx context.Context, config *rest.Config, full size) (rebuilt, error) {
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	before := heap()
	start, startCPU := time.Now(), cpuTime()
	store := state.New(state.Options{})
	options := ctrl.Options{Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"}}
	informer.Trim(&options.Cache)
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return rebuilt{}, fmt.Errorf("building the manager: %w", err)
	}
	if err := informer.New(store).Register(ctx, mgr); err != nil {
		return rebuilt{}, err
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	if err := answers(ctx, store, done); err != nil {
		return rebuilt{}, err
	}
	r := rebuilt{wall: time.Since(start), cpu: cpuTime() - startCPU}
	if err := complete(store.Snapshot(), full); err != nil {
		return rebuilt{}, err
	}
	r.bytes = heap() - before
	runtime.KeepAlive(mgr)
	cancel()
	return r, <-done
}

// answers waits until the state is synced.
func answers(ctx context.Context, store *state.Store, failed <-chan error) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := store.Synced()
		if err == nil {
			return nil
		}
		select {
		case err := <-failed:
			return fmt.Errorf("running the manager: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the state: %w", err)
		case <-ticker.C:
		}
	}
}

// complete checks that the state holds what was written: a fast answer without it would be none.
func complete(s *state.Snapshot, full size) error {
	nodes, servers := 0, 0
	for n := range s.Nodes() {
		nodes++
		for _, v := range n.Servers {
			if v.Witness >= 0 && v.Physical >= 0 && v.McKube != nil {
				servers++
			}
		}
	}
	if nodes != full.nodes || servers != full.containers {
		return fmt.Errorf("the state has %d nodes and %d servers with core and McKube; want %v", nodes, servers, full)
	}
	return nil
}

// fill writes the cluster, owners before what they own.
func fill(ctx context.Context, config *rest.Config, full size) error {
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("building the client: %w", err)
	}
	if err := installCRDs(ctx, kube); err != nil {
		return err
	}
	for i := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%02d", i)}}
		if err := kube.Create(ctx, ns); err != nil {
			return fmt.Errorf("creating namespace %s: %w", ns.Name, err)
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}}
		if err := kube.Create(ctx, account); err != nil {
			return fmt.Errorf("creating the service account of %s: %w", ns.Name, err)
		}
	}
	return newWorld(full, 1).write(ctx, kube)
}

func installCRDs(ctx context.Context, kube client.Client) error {
	crds, err := apis.CRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := kube.Create(ctx, crd); err != nil {
			return fmt.Errorf("creating CRD %s: %w", crd.Name, err)
		}
	}
	return awaitCRDs(ctx, kube)
}

// awaitCRDs waits until McKubes and RTNodes can be listed.
func awaitCRDs(ctx context.Context, kube client.Client) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := errors.Join(kube.List(ctx, &mcv1.McKubeList{}), kube.List(ctx, &v1alpha1.RTNodeList{}))
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the CRDs: %w", err)
		case <-ticker.C:
		}
	}
}

// write creates the objects and their status. The API server makes the UIDs, so owners are named anew.
func (w *world) write(ctx context.Context, kube client.Client) error {
	uids := map[types.UID]types.UID{}
	for i, n := range w.nodes {
		if err := create(ctx, kube, n, uids); err != nil {
			return err
		}
		rename(w.slices[i], uids)
		rename(w.rtNodes[i], uids)
	}
	if err := createAll(ctx, kube, w.slices); err != nil {
		return err
	}
	if err := createAll(ctx, kube, w.mckubes); err != nil {
		return err
	}
	if err := createAll(ctx, kube, w.templates); err != nil {
		return err
	}
	before := make([]types.UID, len(w.pods))
	for i, p := range w.pods {
		before[i] = p.UID
	}
	if err := createAll(ctx, kube, w.pods); err != nil {
		return err
	}
	for i, p := range w.pods {
		uids[before[i]] = p.UID
		rename(w.claims[i], uids)
		w.claims[i].Status.ReservedFor[0].UID = p.UID
	}
	for _, n := range w.rtNodes {
		for i := range n.Spec.Servers {
			n.Spec.Servers[i].PodUID = uids[n.Spec.Servers[i].PodUID]
			n.Status.Servers[i].PodUID = n.Spec.Servers[i].PodUID
		}
	}
	if err := createAll(ctx, kube, w.claims); err != nil {
		return err
	}
	return createAll(ctx, kube, w.rtNodes)
}

func rename(o client.Object, uids map[types.UID]types.UID) {
	owners := slices.Clone(o.GetOwnerReferences()) // objects of a node share them
	for i := range owners {
		owners[i].UID = uids[owners[i].UID]
	}
	o.SetOwnerReferences(owners)
}

func create(ctx context.Context, kube client.Client, o client.Object, uids map[types.UID]types.UID) error {
	before := o.GetUID()
	if err := createAll(ctx, kube, []client.Object{o}); err != nil {
		return err
	}
	uids[before] = o.GetUID()
	return nil
}

// createAll creates the objects and writes their status where they have one.
func createAll[T client.Object](ctx context.Context, kube client.Client, list []T) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, o := range list {
		group.Go(func() error { return createOne(ctx, kube, o) })
	}
	return group.Wait()
}

func createOne(ctx context.Context, kube client.Client, o client.Object) error {
	status := o.DeepCopyObject()
	o.SetUID("")
	if err := kube.Create(ctx, o); err != nil {
		return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
	}
	if !copyStatus(o, status) {
		return nil
	}
	if err := kube.Status().Update(ctx, o); err != nil {
		return fmt.Errorf("writing the status of %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// copyStatus puts the status back that creation ignored; false for kinds without one that matters here.
func copyStatus(o client.Object, from k8sruntime.Object) bool {
	switch o := o.(type) {
	case *corev1.Node:
		o.Status = from.(*corev1.Node).Status
	case *corev1.Pod:
		o.Status = from.(*corev1.Pod).Status
	case *resourcev1.ResourceClaim:
		o.Status = from.(*resourcev1.ResourceClaim).Status
	case *v1alpha1.RTNode:
		o.Status = from.(*v1alpha1.RTNode).Status
	default:
		return false
	}
	return true
}
