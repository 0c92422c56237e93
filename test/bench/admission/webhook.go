package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
	"github.com/mainspring-rt/mainspring/test/bench/report"
)

const (
	// reviews is how many pods a second are created: more than the API server of a cluster of this size takes.
	reviews        = 300
	webhookStart   = 10 * time.Second
	webhookTimeout = 10 * time.Second
)

// measureWebhook sends the reviews of new pods to our handlers over HTTPS, with the full cache behind
// them and all nodes reporting.
func measureWebhook(ctx context.Context, full size, l load) ([]report.Figure, error) {
	w := newWorld(full, 1)
	store, err := state.Build(state.Options{}, w.objects()...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := serve(ctx, store)
	if err != nil {
		return nil, err
	}
	var background sync.WaitGroup
	background.Go(func() { (&bench{size: full, store: store, rtNodes: w.rtNodes}).report(ctx) })
	defer background.Wait()
	defer cancel()
	var p50, p99 []time.Duration
	for round := range l.rounds {
		took, err := server.review(ctx, w, l.requests)
		if err != nil {
			return nil, err
		}
		p50, p99 = append(p50, quantile(took, 0.5)), append(p99, quantile(took, 0.99))
		fmt.Fprintf(os.Stderr, "  webhook, round %d: p50 %.3f ms, p99 %.3f ms\n", round+1, ms(p50[round]), ms(p99[round]))
	}
	how := fmt.Sprintf("%s over HTTPS, client and server on this machine, at most %d a second, %v in the cache under heartbeats; median of %d rounds of %d", webhooks.PathMutatePods, reviews, full, l.rounds, l.requests)
	return []report.Figure{
		{Key: "webhook_p50_ms", Value: ms(median(p50)), Note: how},
		{Key: "webhook_p99_ms", Value: ms(median(p99)), Goal: "< 10", Note: "the same"},
	}, nil
}

// endpoint is a running webhook server.
type endpoint struct {
	url    string
	client *http.Client
}

func serve(ctx context.Context, store *state.Store) (*endpoint, error) {
	certificate, pool, err := selfSigned()
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: ports[0], TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
	}}})
	webhooks.Handlers{Cluster: webhooks.FromStore(store, clock.RealClock{}), Granularity: state.DefaultGranularity}.Register(server)
	failed := make(chan error, 1)
	go func() { failed <- server.Start(ctx) }()
	e := &endpoint{url: fmt.Sprintf("https://127.0.0.1:%d", ports[0]), client: &http.Client{Timeout: webhookTimeout, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: runtime.GOMAXPROCS(0),
	}}}
	return e, awaitStart(ctx, server.StartedChecker(), failed)
}

func awaitStart(ctx context.Context, started func(*http.Request) error, failed <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, webhookStart)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := started(nil)
		if err == nil {
			return nil
		}
		select {
		case err := <-failed:
			return fmt.Errorf("serving webhooks: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the webhook server: %w", err)
		case <-ticker.C:
		}
	}
}

// selfSigned makes a certificate for this machine and the pool that trusts it.
func selfSigned() (*tls.Certificate, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("making certificate: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("reading certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool, nil
}

// review sends so many reviews, one client per CPU, and returns what each took.
func (e *endpoint) review(ctx context.Context, w *world, requests int) ([]time.Duration, error) {
	clients := runtime.GOMAXPROCS(0)
	took := make([][]time.Duration, clients)
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := 0; i < requests/clients && errs[c] == nil; i++ {
				time.Sleep(pause(reviews, clients))
				var d time.Duration
				d, errs[c] = e.one(ctx, w, c+i*clients)
				took[c] = append(took[c], d)
			}
		})
	}
	wg.Wait()
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	return all, errors.Join(errs...)
}

// one sends the review of a pod that a McKube governs; the answer must give it a claim.
func (e *endpoint) one(ctx context.Context, w *world, i int) (time.Duration, error) {
	body, err := reviewOf(w, i)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+webhooks.PathMutatePods, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	start := time.Now()
	response, err := e.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("sending a review: %w", err)
	}
	answer, err := io.ReadAll(response.Body)
	took := time.Since(start)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return 0, fmt.Errorf("reading a review: %w", err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return 0, fmt.Errorf("reading a review: %w", err)
	}
	if review.Response == nil || !review.Response.Allowed || !bytes.Contains(review.Response.Patch, []byte("resourceClaim")) {
		return 0, fmt.Errorf("the pod was not given a claim: %s", answer)
	}
	return took, nil
}

// reviewOf is the creation of a pod as a user writes it, of one McKube after the other.
func reviewOf(w *world, i int) ([]byte, error) {
	m := w.mckubes[i%len(w.mckubes)]
	p := podOf(m, "", m.Name+"-0")
	p.Annotations, p.Spec.ResourceClaims, p.Spec.Containers[0].Resources.Claims = nil, nil, nil
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding a pod: %w", err)
	}
	pods := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(fmt.Sprintf("review-%d", i)), Kind: kind, Resource: pods, RequestKind: &kind, RequestResource: &pods,
			Namespace: p.Namespace, Name: p.Name, Operation: admissionv1.Create, Object: k8sruntime.RawExtension{Raw: raw},
		},
	})
}
