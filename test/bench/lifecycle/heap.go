package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// heapWatch samples the controller's heap until it is stopped.
type heapWatch struct {
	cancel  context.CancelFunc
	done    chan struct{}
	peak    float64
	samples int
	err     error
}

// watchHeap starts to sample, as a Prometheus would: with the token of a ServiceAccount that may
// read metrics and nothing else.
func watchHeap(ctx context.Context, kube client.Client, port int) (*heapWatch, error) {
	token, err := scraperToken(ctx, kube)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &heapWatch{cancel: cancel, done: make(chan struct{})}
	go w.run(ctx, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), token)
	return w, nil
}

func (w *heapWatch) run(ctx context.Context, url, token string) {
	defer close(w.done)
	// The certificate is self-signed and new in every run.
	scraper := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		value, err := scrapeHeap(ctx, scraper, url, token)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.err = err
			return
		}
		w.peak, w.samples = max(w.peak, value), w.samples+1
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// stop ends the sampling and returns the peak in bytes and how many samples it is the peak of.
func (w *heapWatch) stop() (float64, int, error) {
	w.cancel()
	<-w.done
	if w.err != nil {
		return 0, 0, fmt.Errorf("sampling the heap: %w", w.err)
	}
	if w.samples == 0 {
		return 0, 0, errors.New("sampling the heap: no sample was taken")
	}
	return w.peak, w.samples, nil
}

func scrapeHeap(ctx context.Context, scraper *http.Client, url, token string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := scraper.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return gauge(body, "go_memstats_heap_alloc_bytes")
}

func scraperToken(ctx context.Context, kube client.Client) (string, error) {
	meta := metav1.ObjectMeta{Name: "bench-scraper", Namespace: metav1.NamespaceDefault}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace}},
	}
	for _, o := range []client.Object{account, role, binding} {
		if err := kube.Create(ctx, o); err != nil {
			return "", fmt.Errorf("creating the scraper's %T: %w", o, err)
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	if err := kube.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting the scraper's token: %w", err)
	}
	return request.Status.Token, nil
}
