package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/pprof"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/heartbeat"
	"github.com/mainspring-rt/mainspring/pkg/state/informer"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// newManager builds the manager with the settings Karpenter's controllers are written for.
func newManager(ctx context.Context, config *rest.Config, own *Options, certificates *certs.Server) (manager.Manager, error) {
	for _, add := range []func(*runtime.Scheme) error{mckubev1alpha1.AddToScheme, nodeclass.AddToScheme, mcoperatorv1.AddToScheme, kcloudv1alpha1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return nil, fmt.Errorf("registering API types: %w", err)
		}
	}
	o := options.FromContext(ctx)
	caches := cache.Options{ByObject: map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{heartbeat.Namespace: {}}, Label: heartbeat.Selector()},
	}}
	informer.Trim(&caches)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                     scheme.Scheme,
		Logger:                     logging.IgnoreDebugEvents(log.FromContext(ctx)),
		LeaderElection:             !o.DisableLeaderElection,
		LeaderElectionID:           o.LeaderElectionName,
		LeaderElectionNamespace:    o.LeaderElectionNamespace,
		LeaderElectionResourceLock: resourcelock.LeasesResourceLock,
		// The process ends right after the manager, so the next leader need not wait for the lease.
		LeaderElectionReleaseOnCancel: true,
		// Its own configuration, without the rate limiter of the controllers: a busy scale-up must not
		// cost the lease.
		LeaderElectionConfig:   leaderElectionConfig(config),
		Metrics:                metricsOptions(o, own, certificates),
		HealthProbeBindAddress: fmt.Sprintf(":%d", o.HealthProbePort),
		BaseContext:            func() context.Context { return ctx },
		Cache:                  caches,
		// The cache has those of agents only; whoever gets another one asks for it.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&coordinationv1.Lease{}}}},
		Controller: ctrlconfig.Controller{
			EnableWarmup: ptr.To(!o.DisableLeaderElection && !o.DisableControllerWarmup),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	if !o.IgnoreDRARequests {
		if err := preloadClaims(ctx, mgr.GetCache()); err != nil {
			return nil, err
		}
	}
	return mgr, addIndexes(ctx, mgr.GetFieldIndexer())
}

// preloadClaims has the cache read ResourceClaims before anything else starts. Karpenter's index of
// allocated devices reads them from the cache when it starts, and panics when a stop comes while
// the cache is still being filled for it.
func preloadClaims(ctx context.Context, c cache.Cache) error {
	if _, err := c.GetInformer(ctx, &resourcev1.ResourceClaim{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("caching ResourceClaims: %w", err)
	}
	return nil
}

func leaderElectionConfig(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst = 0, 0
	return c
}

// metricsOptions serve metrics, and profiles, over TLS to callers that the cluster lets GET /metrics (TokenReview and SubjectAccessReview).
// With webhooks the server has their certificate, by which Prometheus verifies it before it sends its token.
func metricsOptions(o *options.Options, own *Options, certificates *certs.Server) server.Options {
	s := server.Options{
		BindAddress:    fmt.Sprintf(":%d", o.MetricsPort),
		SecureServing:  true,
		CertDir:        own.MetricsCertDir,
		FilterProvider: filters.WithAuthenticationAndAuthorization,
	}
	if own.Webhooks.Port != 0 && own.MetricsCertDir == "" {
		s.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = certificates.GetCertificate }}
	}
	if o.EnableProfiling {
		s.ExtraHandlers = map[string]http.Handler{
			"/debug/pprof/":        http.HandlerFunc(pprof.Index),
			"/debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
			"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
			"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
			"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
			"/debug/pprof/heap":    pprof.Handler("heap"),
		}
	}
	return s
}

// index is one field that Karpenter's controllers look objects up by.
type index struct {
	object client.Object
	field  string
	value  func(client.Object) string
}

// indexes are those of Karpenter's operator: its controllers fail at their first lookup without them.
func indexes() []index {
	pool := func(o client.Object) *v1.NodeClassReference {
		return o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef
	}
	claim := func(o client.Object) *v1.NodeClassReference { return o.(*v1.NodeClaim).Spec.NodeClassRef }
	return []index{
		{&corev1.Pod{}, "spec.nodeName", func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
		{&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID }},
		{&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName }},
		{&v1.NodeClaim{}, "status.providerID", func(o client.Object) string { return o.(*v1.NodeClaim).Status.ProviderID }},
		{&v1.NodeClaim{}, "spec.nodeClassRef.group", func(o client.Object) string { return claim(o).Group }},
		{&v1.NodeClaim{}, "spec.nodeClassRef.kind", func(o client.Object) string { return claim(o).Kind }},
		{&v1.NodeClaim{}, "spec.nodeClassRef.name", func(o client.Object) string { return claim(o).Name }},
		{&v1.NodePool{}, "spec.template.spec.nodeClassRef.group", func(o client.Object) string { return pool(o).Group }},
		{&v1.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(o client.Object) string { return pool(o).Kind }},
		{&v1.NodePool{}, "spec.template.spec.nodeClassRef.name", func(o client.Object) string { return pool(o).Name }},
	}
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range indexes() {
		value := i.value
		extract := func(o client.Object) []string { return []string{value(o)} }
		if err := indexer.IndexField(ctx, i.object, i.field, extract); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", i.object, i.field, err)
		}
	}
	return nil
}
