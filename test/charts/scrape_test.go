package charts_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scrape asks for the metrics as the ServiceAccount in namespace default, or as nobody, and asserts
// what it is answered.
func (p plane) scrape(t *testing.T, port int, serviceAccount string, want int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	if serviceAccount != "" {
		request.Header.Set("Authorization", "Bearer "+p.token(t, serviceAccount))
	}
	// The controller signs its certificate itself, for no host in particular.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := insecure.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != want {
		t.Errorf("%q gets %s for the metrics, want %d", serviceAccount, response.Status, want)
	}
	return string(body)
}

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
func expectAlertsHaveData(t *testing.T, scraped string) {
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
			sampled := strings.Contains(scraped, "\n"+name+"{") || strings.Contains(scraped, "\n"+name+" ")
			if !sampled && !rare[name] && name != "up" {
				t.Errorf("%s reads %s, which has no sample", r.Alert, name)
			}
		}
	}
}
