package charts_test

import (
	"context"
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/prediction"

	"github.com/mainspring-rt/mainspring/pkg/agent"
	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint"
	"github.com/mainspring-rt/mainspring/pkg/controllers"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// registered assembles the controllers, connected to nothing, and returns the label names of every
// metric that they register, by the metric's name.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	ctx := defaultOptions(t)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		Logger:  logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	op := &operator.Operator{
		Manager:           mgr,
		EventRecorder:     events.NewRecorder(mgr.GetEventRecorderFor("test")), //nolint:staticcheck // Karpenter's recorder takes this interface.
		Clock:             clock.RealClock{},
		InstanceTypeStore: nodeoverlay.NewInstanceTypeStore(),
		PredictionStore:   prediction.NewStore(),
	}
	if _, err := controllers.New(ctx, op, fake.NewCloudProvider(), state.New(state.Options{}), controllers.Options{Lease: types.NamespacedName{Namespace: "default", Name: "queue"}}); err != nil {
		t.Fatal(err)
	}
	for _, register := range []func(prometheus.Registerer) error{metrics.Register, webhooks.RegisterMetrics} {
		if err := register(crmetrics.Registry); err != nil {
			t.Fatal(err)
		}
	}
	return descriptions(t)
}

func defaultOptions(t *testing.T) context.Context {
	t.Helper()
	fs := &options.FlagSet{FlagSet: flag.NewFlagSet("test", flag.ContinueOnError)}
	o := &options.Options{}
	o.AddFlags(fs)
	if err := o.Parse(fs); err != nil {
		t.Fatal(err)
	}
	return o.ToContext(t.Context())
}

// ofAgents are the label names of the metrics of the node agents, by the metric's name.
func ofAgents(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, d := range slices.Concat(agent.Descriptions(), checkpoint.Descriptions()) {
		addDescription(t, found, d)
	}
	return found
}

func addDescription(t *testing.T, to map[string][]string, d *prometheus.Desc) {
	t.Helper()
	match := description.FindStringSubmatch(strings.ReplaceAll(d.String(), "\n", " "))
	if match == nil {
		t.Fatalf("%s is not understood", d)
	}
	to[match[1]] = strings.Split(match[2], ",")
}

var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", .*variableLabels: \{(.*)\}\}$`)

func descriptions(t *testing.T) map[string][]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		crmetrics.Registry.(prometheus.Collector).Describe(descs)
	}()
	metrics := map[string][]string{}
	for d := range descs {
		addDescription(t, metrics, d)
	}
	return metrics
}

var (
	selector = regexp.MustCompile(`([a-z_:]+)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`(?:by|on) \(([^)]*)\)`)
)

// fromScrape are labels that the scrape puts on every sample.
var fromScrape = []string{"job", "instance", "namespace", "exported_namespace"}

// fromAgentScrape are those on the samples of agents, which the ServiceMonitor names after their node.
var fromAgentScrape = []string{"job", "instance", "namespace", "exported_namespace", "node"}

// TestAlertsReadMetricsThatExist holds every metric and label of every expression against what the
// controllers register: an alert on a name that was mistyped, or that an upgrade of Karpenter has
// renamed, would be silent for ever.
func TestAlertsReadMetricsThatExist(t *testing.T) {
	controllers, agents := registered(t), ofAgents(t)
	for _, r := range alerts(t, object{}).all() {
		selectors := selector.FindAllStringSubmatch(r.Expr, -1)
		if len(selectors) == 0 {
			t.Errorf("%s reads no metric: %s", r.Alert, r.Expr)
		}
		known := slices.Clone(fromScrape)
		for _, s := range selectors {
			metrics, scraped := controllers, fromScrape
			if strings.Contains(s[2], `job="mainspring-agent"`) {
				metrics, scraped = agents, fromAgentScrape
			}
			labels, exists := metrics[s[1]]
			if !exists && s[1] != "up" { // Prometheus's own
				t.Errorf("%s reads %s, which nothing of that job registers", r.Alert, s[1])
			}
			known = slices.Concat(known, labels, scraped)
			if !strings.Contains(s[2], `job="mainspring"`) && !strings.Contains(s[2], `job="mainspring-agent"`) {
				t.Errorf("%s reads %s of every job", r.Alert, s[1])
			}
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				if !slices.Contains(slices.Concat(labels, scraped), m[1]) {
					t.Errorf("%s selects %s by %s; it has %v", r.Alert, s[1], m[1], labels)
				}
			}
		}
		for _, g := range grouping.FindAllStringSubmatch(r.Expr, -1) {
			for label := range strings.SplitSeq(g[1], ", ") {
				if !slices.Contains(known, label) {
					t.Errorf("%s groups by %s; there is %v", r.Alert, label, known)
				}
			}
		}
	}
}
