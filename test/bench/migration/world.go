package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cli/stack"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

//go:embed catalogue.yaml
var machines []byte

const (
	pollEvery    = time.Second
	readyTimeout = 10 * time.Minute
	// gracePeriod is how long a kubelet may be silent: a busy machine is late with the leases of a hundred.
	gracePeriod = 10 * time.Minute
	// perNamespace is how many workloads a namespace has.
	perNamespace = 50
	// share of a core that each container is promised, in percent.
	share = 20
)

// auditPolicy has the API server write down who asks for what.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    verbs: [watch]
  - level: None
    resources: [{group: coordination.k8s.io, resources: [leases]}]
  - level: Metadata
`

// world is a cluster with Mainspring.
type world struct {
	client client.Client
	config *rest.Config
	stack  *stack.Stack
	dir    string
	audit  string // path
	pods   int
}

func open(ctx context.Context, b bench) (*world, error) {
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, mcoperatorv1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	w := &world{}
	var err error
	if w.dir, err = os.MkdirTemp("", "mainspring-bench-migration-"); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	catalogue, policy := filepath.Join(w.dir, "catalogue.yaml"), filepath.Join(w.dir, "audit-policy.yaml")
	w.audit = filepath.Join(w.dir, "audit.log")
	if err := errors.Join(os.WriteFile(catalogue, machines, 0o600), os.WriteFile(policy, []byte(auditPolicy), 0o600)); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the world's files: %w", err), w.close())
	}
	w.stack, err = stack.Start(ctx, stack.Options{
		Progress: os.Stderr, NodeMonitorGracePeriod: gracePeriod, Controller: b.controller, Hollow: b.hollow,
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + w.audit, "--audit-log-mode=batch"},
		ControllerArgs: []string{
			"--catalogue-file=" + catalogue, fmt.Sprintf("--queue-node-limit=%d", b.pods), fmt.Sprintf("--queue-namespace-limit=%d", b.pods),
			fmt.Sprintf("--queue-cluster-limit=%d", b.pods),
		},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting Mainspring: %w", err), w.close())
	}
	w.config = w.stack.RESTConfig()
	w.config.QPS, w.config.UserAgent = -1, benchAgent
	if w.client, err = client.New(w.config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, errors.Join(fmt.Errorf("building the client: %w", err), w.close())
	}
	return w, nil
}

func (w *world) close() error {
	var errs []error
	if w.stack != nil {
		errs = append(errs, w.stack.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// settle opens the nodes, and has the pods run: High ones, each the only one of a Deployment.
func (w *world) settle(ctx context.Context, nodes, pods int) error {
	w.pods = pods
	pool := test.RTNodePool("edge", "four-cores", test.Consolidates(karpenterv1.ConsolidationPolicyWhenEmpty, "Never"))
	policy := &v1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: v1alpha1.MigrationPolicySpec{Limits: &v1alpha1.MigrationLimits{
		PerNode: ptr.To(int32(1000)), PerCluster: ptr.To(int32(10000)), PerWorkloadPerHour: ptr.To(int32(1000)),
	}}}
	objects := []client.Object{test.NodeClass(), pool, policy}
	for i := range (pods + perNamespace - 1) / perNamespace {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cell-%d", i)}})
	}
	for i := range pods {
		objects = append(objects, test.McKube(workload(i), share, test.Critical(mcoperatorv1.CriticalityHigh), test.GovernsWorkload(workload(i)), test.In(namespace(i))))
	}
	if err := w.create(ctx, objects...); err != nil {
		return err
	}
	if err := w.pioneer(ctx, nodes); err != nil {
		return err
	}
	if err := w.await(ctx, "the claim templates", func(ctx context.Context) (bool, string, error) {
		list := &resourcev1.ResourceClaimTemplateList{}
		err := w.client.List(ctx, list)
		return len(list.Items) >= pods, fmt.Sprintf("%d of %d", len(list.Items), pods), err
	}); err != nil {
		return err
	}
	objects = nil
	for i := range pods {
		objects = append(objects, test.RTDeployment(workload(i), 1, test.InNamespace(namespace(i)), grouped))
	}
	if err := w.create(ctx, objects...); err != nil {
		return err
	}
	return w.await(ctx, "pods that are ready", func(ctx context.Context) (bool, string, error) {
		list, err := w.list(ctx)
		return count(list, serves) == pods && len(list) == pods, fmt.Sprintf("%d of %d", count(list, serves), pods), err
	})
}

func workload(i int) string  { return fmt.Sprintf("control-%d", i) }
func namespace(i int) string { return fmt.Sprintf("cell-%d", i/perNamespace) }

// labelGroup is on all pods that are moved.
const labelGroup = "bench.mckube.io/migration"

func grouped(t *test.PodTemplate) { t.Labels[labelGroup] = "true" }

func (w *world) list(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := w.client.List(ctx, list, client.HasLabels{labelGroup})
	return list.Items, err
}

func count(pods []corev1.Pod, is func(*corev1.Pod) bool) (n int) {
	for i := range pods {
		if is(&pods[i]) {
			n++
		}
	}
	return n
}

// serves tells whether a pod is ready, has its cores, and was not told to go.
func serves(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Annotations[mcoperatorv1.AnnotationConfigured] != "true" {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// pioneer has nodes opened, each by a pod that takes more than half of one, and leaves them empty: kube-scheduler then finds a
// place for each pod at its first look.
func (w *world) pioneer(ctx context.Context, nodes int) error {
	d := test.Deployment("pioneer", int32(nodes), "2600m") //nolint:gosec // a thousand at most
	if err := w.create(ctx, d); err != nil {
		return err
	}
	here := func(ctx context.Context, is func(*corev1.Pod) bool) (int, error) {
		pods := &corev1.PodList{}
		err := w.client.List(ctx, pods, client.MatchingLabels{test.Label: d.Name})
		return count(pods.Items, is), err
	}
	if err := w.await(ctx, "nodes", func(ctx context.Context) (bool, string, error) {
		n, err := here(ctx, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		return n == nodes, fmt.Sprintf("%d of %d", n, nodes), err
	}); err != nil {
		return err
	}
	if err := w.client.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return fmt.Errorf("deleting the pioneers: %w", err)
	}
	return w.await(ctx, "pioneers that leave", func(ctx context.Context) (bool, string, error) {
		n, err := here(ctx, func(*corev1.Pod) bool { return true })
		return n == 0, fmt.Sprintf("%d left", n), err
	})
}

func (w *world) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := w.client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// await asks once a second until it is so, and says how far it is.
func (w *world) await(ctx context.Context, what string, is func(context.Context) (bool, string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	said := ""
	for {
		done, how, err := is(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			fmt.Fprintf(os.Stderr, "  %s: %v\n", what, err)
		case done:
			return nil
		case how != said:
			fmt.Fprintf(os.Stderr, "  %s: %s\n", what, how)
			said = how
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %s", what, ctx.Err(), said)
		case <-ticker.C:
		}
	}
}
