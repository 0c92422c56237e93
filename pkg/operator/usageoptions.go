package operator

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// UsageOptions say where the usage of nodes is read.
type UsageOptions struct {
	// Source is one of usage.Sources.
	Source string
	// Timeout of one look.
	Timeout time.Duration
	// PrometheusURL without path, and its queries.
	PrometheusURL, PrometheusCPU, PrometheusMemory string
	// PrometheusTokenFile holds a bearer token; PrometheusCAFile the certificates that the server's is verified with.
	PrometheusTokenFile, PrometheusCAFile string
	// InfluxCPU and InfluxMemory are queries in Flux.
	InfluxCPU, InfluxMemory string
}

func (o *UsageOptions) addFlags(fs *options.FlagSet) {
	fs.Var(check(&o.Source, usage.SourceMetricsAPI, oneOf(usage.Sources...)), "usage-source", "Where the usage of nodes is read: "+strings.Join(usage.Sources, ", ")+" (what pods request, as the SDI Migration Service does)")
	fs.Var(check(&o.Timeout, 10*time.Second, seconds(time.Second, 5*time.Minute)), "usage-timeout", "How long one look at the usage of nodes may take")
	fs.Var(check(&o.PrometheusURL, "", address), "usage-prometheus-url", "URL, without /api/v1, of Prometheus")
	fs.StringVar(&o.PrometheusCPU, "usage-prometheus-cpu-query", usage.DefaultCPUQuery, "PromQL that gives the usage of CPU, from 0 to 1, of each node, under label node, nodename, kubernetes_node or instance; $age stands for three intervals, beyond which a reading is unknown")
	fs.StringVar(&o.PrometheusMemory, "usage-prometheus-memory-query", usage.DefaultMemoryQuery, "PromQL that gives the usage of memory, likewise")
	fs.StringVar(&o.PrometheusTokenFile, "usage-prometheus-token-file", "", "File with a bearer token for Prometheus, from a Secret. Empty: none is sent")
	fs.StringVar(&o.PrometheusCAFile, "usage-prometheus-ca-file", "", "File with PEM certificates that the one of Prometheus is verified with. Empty: those of the system")
	fs.StringVar(&o.InfluxCPU, "usage-influx-cpu-query", "", "Flux that gives the usage of CPU, from 0 to 1, of each node: columns node and value, and _time if it keeps that")
	fs.StringVar(&o.InfluxMemory, "usage-influx-memory-query", "", "Flux that gives the usage of memory, likewise")
}

// validate says what the source needs and does not have.
func (o *UsageOptions) validate(i InfluxOptions) error {
	switch {
	case o.Source == usage.SourcePrometheus && o.PrometheusURL == "":
		return errors.New("--usage-prometheus-url is empty; --usage-source=prometheus wants its URL, such as http://prometheus.monitoring.svc:9090")
	case o.Source == usage.SourcePrometheus && (o.PrometheusCPU == "" || o.PrometheusMemory == ""):
		return errors.New("--usage-prometheus-cpu-query or --usage-prometheus-memory-query is empty; --usage-source=prometheus wants both")
	case o.PrometheusTokenFile != "" && !strings.HasPrefix(o.PrometheusURL, "https://"):
		return fmt.Errorf("--usage-prometheus-url is %q; with --usage-prometheus-token-file it must be https: a token is not sent in the clear", o.PrometheusURL)
	case o.Source == usage.SourceInflux && (o.InfluxCPU == "" || o.InfluxMemory == ""):
		return errors.New("--usage-influx-cpu-query or --usage-influx-memory-query is empty; --usage-source=influxdb wants both, in Flux")
	case o.Source == usage.SourceInflux && i.token.reveal() == "" && i.TokenFile == "":
		return fmt.Errorf("--usage-source is %q, and InfluxDB 2.x wants a token; give environment variable %s from a Secret, or --influx-token-file", o.Source, influxToken)
	}
	if err := readable("usage-prometheus-token-file", o.PrometheusTokenFile); err != nil {
		return err
	}
	_, err := certificates("usage-prometheus-ca-file", o.PrometheusCAFile)
	return err
}

// source of usage. Readings older than maxAge are not asked for.
func (o *UsageOptions) source(op *operator.Operator, i InfluxOptions, maxAge time.Duration) (usage.Source, error) {
	switch o.Source {
	case usage.SourcePrometheus:
		sender, err := sender("usage-prometheus-ca-file", o.PrometheusCAFile)
		if err != nil {
			return nil, err
		}
		if o.PrometheusTokenFile != "" {
			sender.Transport = bearer{sender.Transport, tokenOf(nil, o.PrometheusTokenFile)}
		}
		return &usage.Prometheus{URL: o.PrometheusURL, CPUQuery: o.PrometheusCPU, MemoryQuery: o.PrometheusMemory, MaxAge: maxAge, HTTP: sender}, nil
	case usage.SourceInflux:
		c, err := i.client()
		return &usage.Influx{Client: c, CPUQuery: o.InfluxCPU, MemoryQuery: o.InfluxMemory, Now: op.Clock.Now}, err
	case usage.SourceRequests:
		return requests(op.GetClient(), op.Clock), nil
	}
	return &usage.MetricsAPI{Reader: op.GetAPIReader()}, nil
}

func requests(reader client.Reader, clk clock.PassiveClock) usage.Source {
	return &usage.Requests{Reader: reader, Now: clk.Now}
}

// bearer sends a token, read each time, with every request.
type bearer struct {
	next  http.RoundTripper
	token func() (string, error)
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.token()
	if err != nil {
		return nil, fmt.Errorf("reading the token for Prometheus: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(r)
}
