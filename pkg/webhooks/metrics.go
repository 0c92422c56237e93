package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The values of label verdict.
const (
	verdictAllowed = "allowed"
	verdictRefused = "refused"
	verdictUnready = "unready"
	verdictFailed  = "failed"
	// verdictLater is an eviction that is put off, verdictGone one of a pod that has gone.
	verdictLater = "later"
	verdictGone  = "gone"
)

// The values of label outcome of evictions.
const (
	// gateBegun: a PodMigration was created. gateLater: the caller was told to come again. gateGone: that the pod has gone, and another has its place.
	gateBegun = "begun"
	gateLater = "later"
	gateGone  = "gone"
	// All others passed. gateOther: the pod is none that migrates.
	gateOther = "not_migratable"
	// gateOwn: it belongs to an action of the queue.
	gateOwn = "own"
	// gateOver: the migration is over. gateLate: it has not ended in time.
	gateOver   = "migration_over"
	gateLate   = "deadline"
	gateDryRun = "dry_run"
	// gateUnready: the cache is incomplete, or the gate is off. gateFailed: the API server could not be asked.
	gateUnready    = "unready"
	gateFailed     = "failed"
	gateUnreadable = "unreadable"
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mainspring_webhook_requests_total",
		Help: "Admission requests answered, by webhook and verdict: allowed, refused, unready (the caller was told to try again), later (an eviction was put off), gone (an eviction was of a pod that has gone) or failed (the request made no sense).",
	}, []string{"webhook", "verdict"})
	evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mainspring_evictions_total",
		Help: "Evictions that the gate was asked about, by what became of them: begun (a PodMigration was created), later (put off until it ends) and gone (the pod was moved, and another has its name); all others passed, with the reason.",
	}, []string{"outcome"})
	expiry = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mainspring_webhook_certificate_expiry_timestamp_seconds",
		Help: "When the certificate that the webhooks serve with ends, in seconds since 1970; 0 while there is none.",
	})
	secretMissing = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mainspring_webhook_secret_missing",
		Help: "1 on the leader while the Secret with the webhooks' certificate is gone and the controller may not create it, else 0.",
	})
	leftOut = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mainspring_webhook_selectors_left_out",
		Help: "McKubes whose pods are only governed when they carry label sdv.com, because there are too many selectors to send each to the webhooks.",
	})
	unknownClients = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mainspring_webhook_unknown_clients_total",
		Help: "Requests to the webhooks that did not know their secret path, and were not answered.",
	})
)

// RegisterMetrics adds the package's metrics to a registry, once, before the webhooks answer.
func RegisterMetrics(registry prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{requests, evictions, expiry, secretMissing, leftOut, unknownClients} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	for _, path := range []string{PathMutatePods, PathValidatePods, PathValidateMcKubes, PathValidateMigrationPolicies, PathPlaceWorkloads} {
		for _, verdict := range []string{verdictAllowed, verdictRefused, verdictUnready, verdictFailed} {
			requests.WithLabelValues(webhookOf(path), verdict)
		}
	}
	for _, verdict := range []string{verdictAllowed, verdictLater, verdictGone} {
		requests.WithLabelValues(webhookOf(PathEvictions), verdict)
	}
	for _, outcome := range []string{gateBegun, gateLater, gateGone, gateOther, gateOwn, gateOver, gateLate, gateDryRun, gateUnready, gateFailed, gateUnreadable} {
		evictions.WithLabelValues(outcome)
	}
	return nil
}

// counted counts the answers.
func counted(path string, handle admission.HandlerFunc) admission.HandlerFunc {
	return func(ctx context.Context, req admission.Request) admission.Response {
		response := handle(ctx, req)
		requests.WithLabelValues(webhookOf(path), verdictOf(response)).Inc()
		return response
	}
}

func webhookOf(path string) string { return strings.TrimPrefix(path, "/") }

func verdictOf(r admission.Response) string {
	switch {
	case r.Allowed:
		return verdictAllowed
	case r.Result != nil && r.Result.Code == http.StatusServiceUnavailable:
		return verdictUnready
	case r.Result != nil && r.Result.Code == http.StatusUnprocessableEntity:
		return verdictRefused
	case r.Result != nil && r.Result.Code == http.StatusTooManyRequests:
		return verdictLater
	case r.Result != nil && r.Result.Code == http.StatusNotFound:
		return verdictGone
	}
	return verdictFailed
}
