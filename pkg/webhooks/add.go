package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// Options say where the webhooks listen and what is theirs in the cluster.
type Options struct {
	// Host and Port to listen on; an empty host means every address.
	Host string
	Port int
	// ClientCA has the PEM certificates of the authority that signs the client certificates of API servers. Empty: API servers are known by
	// the secret path alone.
	ClientCA []byte
	// Namespace and Secret hold the certificate.
	Namespace, Secret string
	// Authority makes it, where Rotate is set; otherwise another controller fills the Secret, as cert-manager does.
	Authority certs.Authority
	Rotate    bool
	// Certificates serves the certificate of the Secret, to API servers and wherever else the caller uses it.
	Certificates *certs.Server
	// Configurations is the name of the MutatingWebhookConfiguration and ValidatingWebhookConfiguration;
	// the generated one has -governed after it.
	Configurations string
}

// Add serves the handlers from the manager, on every replica, and has the leader keep certificate and
// configurations. ready says whether this replica has a valid certificate.
func Add(mgr manager.Manager, handlers Handlers, clk clock.PassiveClock, o Options) (ready healthz.Checker, err error) {
	token := &pathToken{clock: clk}
	config, err := tlsConfig(o.Certificates, o.ClientCA)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(newServer(o, config, token, handlers, mgr.GetLogger().WithName("webhooks"))); err != nil {
		return nil, fmt.Errorf("adding the webhook server: %w", err)
	}
	own, err := ownCluster(mgr, o)
	if err != nil {
		return nil, err
	}
	if err := addCertificate(mgr, own, o.Certificates); err != nil {
		return nil, err
	}
	if err := addPathToken(mgr, own, token); err != nil {
		return nil, err
	}
	if err := addConfigurations(mgr, own, clk, o); err != nil {
		return nil, err
	}
	return func(*http.Request) error { return errors.Join(o.Certificates.Ready(clk.Now()), token.known()) }, nil
}

// ownCluster watches one Secret and the configurations of one name: the manager's own cache would read all of them.
func ownCluster(mgr manager.Manager, o Options) (cluster.Cluster, error) {
	configuration := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", o.Configurations)}
	own, err := cluster.New(mgr.GetConfig(), func(c *cluster.Options) {
		c.Scheme, c.Logger = mgr.GetScheme(), mgr.GetLogger()
		c.Cache.ByObject = map[client.Object]cache.ByObject{
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{o.Namespace: {}},
				Field:      fields.OneTermEqualSelector("metadata.name", o.Secret),
			},
			&admissionv1.MutatingWebhookConfiguration{}:   configuration,
			&admissionv1.ValidatingWebhookConfiguration{}: configuration,
		}
	})
	if err != nil {
		return nil, fmt.Errorf("building the cache of the webhooks' Secret and configurations: %w", err)
	}
	if err := mgr.Add(own); err != nil {
		return nil, fmt.Errorf("adding the cache of the webhooks' Secret and configurations: %w", err)
	}
	return own, nil
}

func addCertificate(mgr manager.Manager, own cluster.Cluster, server *certs.Server) error {
	changed := source.Kind(own.GetCache(), &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})
	err := ctrl.NewControllerManagedBy(mgr).Named("webhooks.certificate").WatchesRawSource(changed).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(&certificate{reader: own.GetCache(), server: server})
	if err != nil {
		return fmt.Errorf("adding controller webhooks.certificate: %w", err)
	}
	return nil
}

// addPathToken has every replica follow the token in the validating configuration, which the leader writes first.
func addPathToken(mgr manager.Manager, own cluster.Cluster, token *pathToken) error {
	changed := source.Kind(own.GetCache(), &admissionv1.ValidatingWebhookConfiguration{}, &handler.TypedEnqueueRequestForObject[*admissionv1.ValidatingWebhookConfiguration]{})
	err := ctrl.NewControllerManagedBy(mgr).Named("webhooks.path").WatchesRawSource(changed).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			config := &admissionv1.ValidatingWebhookConfiguration{}
			if err := own.GetCache().Get(ctx, req.NamespacedName, config); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			token.set(validatingClients(config)...)
			return reconcile.Result{}, nil
		}))
	if err != nil {
		return fmt.Errorf("adding controller webhooks.path: %w", err)
	}
	return nil
}

// awaitedOwnersChange passes PodMigrations whose owner begins, or ceases, to be waited for.
func awaitedOwnersChange() predicate.Predicate {
	awaited := func(o client.Object) bool {
		migration, ok := o.(*v1alpha1.PodMigration)
		return ok && awaitsOwner(migration)
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return awaited(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return awaited(e.ObjectOld) != awaited(e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return awaited(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// addConfigurations wakes the one reconciliation for the Secret, the configurations, every McKube and every owner of a migrated pod, and once at the start.
func addConfigurations(mgr manager.Manager, own cluster.Cluster, clk clock.PassiveClock, o Options) error {
	one := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	err := ctrl.NewControllerManagedBy(mgr).Named("webhooks.configurations").
		WatchesRawSource(source.Kind[client.Object](own.GetCache(), &corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(one))).
		WatchesRawSource(source.Kind[client.Object](own.GetCache(), &admissionv1.MutatingWebhookConfiguration{}, handler.EnqueueRequestsFromMapFunc(one))).
		WatchesRawSource(source.Kind[client.Object](own.GetCache(), &admissionv1.ValidatingWebhookConfiguration{}, handler.EnqueueRequestsFromMapFunc(one))).
		// Their status changes all the time and matters here never.
		WatchesRawSource(source.Kind[client.Object](mgr.GetCache(), &mcv1.McKube{}, handler.EnqueueRequestsFromMapFunc(one), predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](mgr.GetCache(), &v1alpha1.PodMigration{}, handler.EnqueueRequestsFromMapFunc(one), awaitedOwnersChange())).
		WatchesRawSource(source.Func(atStart)).
		Complete(&Configurations{
			Reader: mgr.GetAPIReader(), Cache: mgr.GetCache(), Client: mgr.GetClient(),
			Recorder: mgr.GetEventRecorderFor("mainspring"), //nolint:staticcheck // the controller writes core Events, as Karpenter does
			Clock:    clk, Options: o,
		})
	if err != nil {
		return fmt.Errorf("adding controller webhooks.configurations: %w", err)
	}
	return nil
}

// atStart wakes it even where there is neither Secret nor McKube.
func atStart(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(reconcile.Request{})
	return nil
}
