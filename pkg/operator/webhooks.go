package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/agentcertificate"
	"github.com/mainspring-rt/mainspring/pkg/servingcert"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// WebhookOptions are the settings of the admission webhooks.
type WebhookOptions struct {
	// Port to listen on; 0 switches the webhooks off.
	Port int
	// Host to listen on; empty for every address.
	Host string
	// Namespace and CertSecret are where the certificate is kept.
	Namespace, CertSecret string
	// CertRotation: the controller makes the certificate itself.
	CertRotation bool
	// CertValidity of a certificate that it makes.
	CertValidity time.Duration
	// DNSNames, separated by commas, that API servers call it by.
	DNSNames string
	// ClientCAFile has the certificates of the authority that signs the client certificates of API servers; empty: they show none.
	ClientCAFile string
	// Configurations is the name of the webhook configurations.
	Configurations string
	// AgentCertificates is NAMESPACE/NAME of the ServiceAccount and the Service of the node agents whose certificates
	// the controller signs; empty: it signs none.
	AgentCertificates string
	// EvictionDeadline is how long evictions of pods that are migrated instead are put off; 0: not at all.
	EvictionDeadline time.Duration
}

func (o *WebhookOptions) addFlags(fs *options.FlagSet) {
	fs.IntVar(&o.Port, "webhook-port", 0, "Port of the admission webhooks. 0: no webhooks, so no pod gets a real-time core")
	fs.StringVar(&o.Host, "webhook-host", "", "Address that the admission webhooks listen on. Empty: every address")
	fs.StringVar(&o.Namespace, "webhook-namespace", "mainspring-system", "Namespace of the Secret with the webhooks' certificate")
	fs.StringVar(&o.CertSecret, "webhook-cert-secret", "mainspring-webhook", "Secret with the webhooks' certificate")
	fs.BoolVar(&o.CertRotation, "webhook-cert-rotation", true, "Make and renew the webhooks' certificate. False: something else fills the Secret with tls.crt, tls.key and ca.crt, as cert-manager does")
	fs.DurationVar(&o.CertValidity, "webhook-cert-validity", 90*24*time.Hour, "How long a certificate of the webhooks is valid. It is renewed when a third of that is left; its authority is valid for ten times as long")
	fs.StringVar(&o.DNSNames, "webhook-dns-names", "localhost", "Comma-separated names by which API servers call the webhooks")
	fs.StringVar(&o.ClientCAFile, "webhook-client-ca-file", "", "File with the PEM certificates of the authority that signs the client certificates of API servers. With it, the webhooks answer clients with such a certificate only. Empty: the webhooks know API servers by their secret path alone")
	fs.StringVar(&o.AgentCertificates, "agent-certificates", "", "NAMESPACE/NAME of the ServiceAccount and the Service of the node agents. The controller signs their requests for serving certificates (signer mckube.io/agent-serving) by the authority of the webhooks' certificate. Empty: it signs none")
	fs.StringVar(&o.Configurations, "webhook-configurations", "mainspring", "Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration; those of unlabelled pods have -governed after it")
	fs.DurationVar(&o.EvictionDeadline, "webhook-eviction-deadline", 10*time.Minute, "How long the eviction of a pod that is migrated instead is put off. 0s: pods are evicted at once, and not migrated")
}

// validity of a certificate: API servers and this one may differ by an hour.
const (
	minCertValidity = 10 * time.Minute
	maxCertValidity = 3 * 365 * 24 * time.Hour
)

// mostDeferral is how long an eviction may be put off.
const mostDeferral = 24 * time.Hour

func (o *WebhookOptions) validate() error {
	if err := o.validateAgentCertificates(); err != nil {
		return err
	}
	if o.Port == 0 {
		return nil
	}
	if o.Port < 0 || o.Port > 65535 {
		return fmt.Errorf("--webhook-port is %d; it must be from 1 to 65535, or 0 for no webhooks", o.Port)
	}
	if o.Namespace == "" || o.CertSecret == "" || o.Configurations == "" {
		return errors.New("--webhook-namespace, --webhook-cert-secret and --webhook-configurations must not be empty")
	}
	if o.CertValidity < minCertValidity || o.CertValidity > maxCertValidity {
		return fmt.Errorf("--webhook-cert-validity is %s; it must be from %s to %s", o.CertValidity, minCertValidity, maxCertValidity)
	}
	if o.EvictionDeadline < 0 || o.EvictionDeadline > mostDeferral {
		return fmt.Errorf("--webhook-eviction-deadline is %s; it must be from 0s to %s", o.EvictionDeadline, mostDeferral)
	}
	for _, name := range o.dnsNames() {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Errorf("--webhook-dns-names has %q; %s", name, problems[0])
		}
	}
	return nil
}

func (o *WebhookOptions) validateAgentCertificates() error {
	if o.AgentCertificates == "" {
		return nil
	}
	if _, err := servingcert.ParseAgents(o.AgentCertificates); err != nil {
		return fmt.Errorf("--agent-certificates: %w", err)
	}
	if o.Port == 0 || !o.CertRotation {
		return errors.New("--agent-certificates needs the authority of the webhooks' certificate: set --webhook-port and --webhook-cert-rotation")
	}
	return nil
}

func (o *WebhookOptions) dnsNames() []string { return strings.Split(o.DNSNames, ",") }

// addWebhooks serves the admission webhooks from what store knows, and makes this process ready only
// when it has their certificate.
func addWebhooks(ctx context.Context, mgr manager.Manager, own *Options, store *state.Store, clk clock.PassiveClock, certificates *certs.Server) error {
	o := own.Webhooks
	if o.Port == 0 {
		return nil
	}
	if err := webhooks.RegisterMetrics(crmetrics.Registry); err != nil {
		return err
	}
	handlers := webhooks.Handlers{
		Cluster: webhooks.FromStore(store, clk), Granularity: own.RT.BudgetGranularity.Microseconds(), Live: mgr.GetAPIReader(),
		Spared: []string{metav1.NamespaceSystem, o.Namespace}, Migrations: mgr.GetClient(), Workloads: mgr.GetClient(),
		Evictions: evictionGate(mgr, o, store, clk),
	}
	// Evictions and pods of workloads are not to wait until they have been read.
	for _, o := range []client.Object{&v1alpha1.PodMigration{}, &v1alpha1.NodeCheckpoint{}, &kcloudv1alpha1.WorkloadOptimizer{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("caching what evictions and pods of workloads are judged by: %w", err)
		}
	}
	clientCA, err := o.readClientCA()
	if err != nil {
		return err
	}
	ready, err := webhooks.Add(mgr, handlers, clk, webhooks.Options{
		Host: o.Host, Port: o.Port, ClientCA: clientCA, Namespace: o.Namespace, Secret: o.CertSecret,
		Authority: certs.Authority{DNSNames: o.dnsNames(), Validity: o.CertValidity}, Rotate: o.CertRotation,
		Configurations: o.Configurations, Certificates: certificates,
	})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhook-certificate", ready); err != nil {
		return fmt.Errorf("adding the readiness check \"webhook-certificate\": %w", err)
	}
	return o.addAgentCertificates(mgr, clk)
}

// addAgentCertificates has the leader sign the certificates of node agents.
func (o *WebhookOptions) addAgentCertificates(mgr manager.Manager, clk clock.PassiveClock) error {
	if o.AgentCertificates == "" {
		return nil
	}
	agents, err := servingcert.ParseAgents(o.AgentCertificates)
	if err != nil {
		return err
	}
	return agentcertificate.Add(mgr, agentcertificate.Signer{
		Secrets: mgr.GetAPIReader(), Client: mgr.GetClient(), Agents: agents, Clock: clk,
		Secret:    types.NamespacedName{Namespace: o.Namespace, Name: o.CertSecret},
		Authority: certs.Authority{DNSNames: o.dnsNames(), Validity: o.CertValidity},
	})
}

func (o *WebhookOptions) readClientCA() ([]byte, error) {
	if o.ClientCAFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(o.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca-file: %w", err)
	}
	return pem, nil
}

// evictionGate turns evictions into migrations.
func evictionGate(mgr manager.Manager, o WebhookOptions, store *state.Store, clk clock.PassiveClock) *webhooks.Gate {
	return &webhooks.Gate{
		Synced: store.Synced,
		Pod:    func(namespace, name string) (*state.PodView, bool) { return store.Snapshot().PodNamed(namespace, name) },
		Closed: func(node string) bool {
			n, known := store.Snapshot().NodeView(node)
			return known && (!n.Schedulable || n.Deleting)
		},
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clk, Deadline: o.EvictionDeadline, Self: webhooks.Self(mgr.GetClient()),
	}
}
