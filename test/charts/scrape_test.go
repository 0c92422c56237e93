package charts_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scrape asks for the metrics as the ServiceAccount in namespace default, or without credentials, and asserts
// what it is answered. It returns the body.
func (p plane) scrape(t *testing.T, port int, serviceAccount string, want int) string {
	t.Helper()
	token := ""
	if serviceAccount != "" {
		token = p.token(t, serviceAccount)
	}
	status, body, err := readMetrics(t.Context(), port, token)
	if err != nil {
		t.Fatal(err)
	}
	if status != want {
		t.Errorf("%q gets status %d for the metrics, want %d", serviceAccount, status, want)
	}
	return body
}

// collectMetrics scrapes every second until the returned function is called, which returns the names of all metrics that had a sample in any
// scrape. Some have samples only while a node is being terminated.
func (p plane) collectMetrics(t *testing.T, port int, serviceAccount string) (stop func() map[string]bool) {
	t.Helper()
	token := p.token(t, serviceAccount)
	ctx, cancel := context.WithCancel(t.Context())
	names, done := map[string]bool{}, make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			status, body, err := readMetrics(ctx, port, token)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil || status != http.StatusOK:
				t.Errorf("%q gets status %d for the metrics, %v; want %d", serviceAccount, status, err, http.StatusOK)
				return
			}
			addNames(names, body)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	end := func() map[string]bool {
		cancel()
		<-done
		return names
	}
	t.Cleanup(func() { end() }) // a test that ends early
	return end
}

// addNames adds the names of the metrics that have a sample.
func addNames(names map[string]bool, scraped string) {
	for line := range strings.Lines(scraped) {
		if !strings.HasPrefix(line, "#") {
			names[line[:max(0, strings.IndexAny(line, "{ "))]] = true
		}
	}
}

// readMetrics scrapes once.
func readMetrics(ctx context.Context, port int, token string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := metricsClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// expectMetricsOf verifies the server of the metrics by the authority in a Secret of the release, as the ServiceMonitor has Prometheus do.
func (p plane) expectMetricsOf(t *testing.T, secret string, port int) {
	t.Helper()
	s := &corev1.Secret{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: secret}, s); err != nil {
		t.Fatal(err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(s.Data["ca.crt"]) {
		t.Fatalf("Secret %s has no certificate in ca.crt", secret)
	}
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: authority, ServerName: "localhost"}} // of --webhook-dns-names
	conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatalf("verifying the server of the metrics: %v", err)
	}
	_ = conn.Close() // nothing was written
}

// metricsClient trusts any certificate: without webhooks the controller signs its own, for no host in particular.
var metricsClient = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func (p plane) token(t *testing.T, serviceAccount string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: serviceAccount}}
	request := &authenticationv1.TokenRequest{}
	if err := p.client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatalf("getting a token of %s: %v", serviceAccount, err)
	}
	return request.Status.Token
}

// rare are metrics without a sample until something has gone wrong, or for a moment only.
var rare = map[string]bool{
	"karpenter_cloudprovider_errors_total":                          true,
	"karpenter_nodeclaims_disrupted_total":                          true,
	"karpenter_nodeclaims_unhealthy_disrupted_total":                true,
	"karpenter_pods_provisioning_scheduling_undecided_time_seconds": true,
	"karpenter_voluntary_disruption_queue_failures_total":           true,
	"karpenter_voluntary_disruption_consolidation_timeouts_total":   true,
}

// expectAlertsHaveData asserts that what the alerts read is also written: a metric may be registered
// and yet never get a sample, and an alert on it would be silent for ever.
func expectAlertsHaveData(t *testing.T, sampled map[string]bool) {
	t.Helper()
	for _, r := range alerts(t, object{}).all() {
		for _, s := range selector.FindAllStringSubmatch(r.Expr, -1) {
			name := s[1]
			if strings.Contains(s[2], `job="mainspring-agent"`) {
				continue // no agent runs here; its own tests scrape it
			}
			if strings.HasPrefix(name, "mainspring_inventory_") {
				continue // the cloud here is the simulated one; the provider's tests read them
			}
			if !sampled[name] && !rare[name] && name != "up" {
				t.Errorf("%s reads %s, which has no sample", r.Alert, name)
			}
		}
	}
}
