package environment

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scraper reads the controller's metrics as Prometheus would: over TLS, with a ServiceAccount's token.
type scraper struct {
	client *http.Client
	token  string
}

func newScraper(token string) scraper {
	return scraper{token: token, client: &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,                                  // the controller may have been restarted
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // its certificate is self-signed
		},
	}}
}

func (s scraper) scrape(ctx context.Context, port int) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading metrics: %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// Metric returns the sum over the series of a counter or gauge that have all the labels; of a
// histogram, the number of its observations. A metric without such series is 0.
func (env *Environment) Metric(g Gomega, name string, labels map[string]string) float64 {
	return env.MetricOf(g, env.Controller, name, labels)
}

func sum(family *dto.MetricFamily, labels map[string]string) float64 {
	var total float64
	for _, m := range family.GetMetric() {
		if hasLabels(m, labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// EventuallyIncreases runs act, and expects the metric to become larger than it was before.
func (env *Environment) EventuallyIncreases(name string, labels map[string]string, act func()) {
	GinkgoHelper()
	var before float64
	Eventually(func(g Gomega) { before = env.Metric(g, name, labels) }).Should(Succeed())
	act()
	Eventually(func(g Gomega) float64 { return env.Metric(g, name, labels) }).Should(BeNumerically(">", before), "%s%v", name, labels)
}

func hasLabels(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.GetLabel() {
		if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}
