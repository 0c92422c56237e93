package frontdoor_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/test/access"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// plane is a real API server, started by the first test that needs it.
var (
	running *localplane.Plane
	plane   = sync.OnceValues(func() (*localplane.Plane, error) {
		ctx := context.Background()
		options := localplane.Options{APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount", localplane.WithoutFairness}} // this plane has no controller that makes them
		var err error
		if options.Bin, err = toolchain.Ensure(ctx, os.Stderr, options.Tools()...); err != nil {
			return nil, err
		}
		running, err = localplane.Start(ctx, options)
		return running, err
	})
)

func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		_ = running.Stop() // the tests are over
	}
	os.Exit(code)
}

// door is a server on a real API server's word.
type door struct {
	testing.TB
	client *http.Client
	url    string
	kube   kubernetes.Interface
	config *rest.Config // an administrator's
	calls  int
	mu     sync.Mutex
	away   atomic.Bool // the API server
}

// roundTripper is the way to the API server.
func (d *door) roundTripper(to http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if d.away.Load() {
			return nil, errors.New("connection refused")
		}
		return to.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type echo struct {
	ID string `json:"id"`
}

// newDoor serves POST /set-rt, which echoes the container's ID, GET /metrics and an open GET /healthz.
func newDoor(t testing.TB, limits frontdoor.Limits) *door {
	t.Helper()
	p, err := plane()
	if err != nil {
		t.Fatal(err)
	}
	config := p.RESTConfig()
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{TB: t, kube: kubernetes.NewForConfigOrDie(config), config: config}
	httpClient.Transport = d.roundTripper(httpClient.Transport)
	judge, err := frontdoor.NewJudge(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := frontdoor.NewCertificate(frontdoor.CertificateOptions{Keep: t.TempDir(), DNSNames: []string{"localhost"}, Clock: clock.RealClock{}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.url = "https://" + listener.Addr().String()
	set := func(_ context.Context, r frontdoor.SetRT) (echo, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls++
		return echo{ID: r.ContainerID.ID}, nil
	}
	server := frontdoor.New(
		frontdoor.Options{Listener: listener, TLS: certificate.TLS(), Judge: judge, Clock: clock.RealClock{}, Log: logr.Discard(), Limits: &limits},
		frontdoor.Route{Pattern: "POST /set-rt", Handler: frontdoor.Post(logr.Discard(), frontdoor.ParseSetRT, set)},
		frontdoor.Route{Pattern: "GET /status", Handler: frontdoor.Get(func() any { return echo{ID: "status"} })},
		frontdoor.Route{Pattern: "GET /healthz", Handler: frontdoor.Probe(func() error { return nil }), Open: true},
	)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate.CA())
	d.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}}}
	return d
}

// token is that of a new ServiceAccount, which may post to the given paths.
func (d *door) token(name string, paths ...string) string {
	d.Helper()
	return d.tokenFor(name, []string{frontdoor.Audience}, paths...)
}

// tokenFor is the same for other audiences; without any it is for the API server.
func (d *door) tokenFor(name string, audiences []string, paths ...string) string {
	d.Helper()
	ctx := d.Context()
	name = fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
	must := func(err error) {
		d.Helper()
		if err != nil {
			d.Fatal(err)
		}
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: "default"}
	_, err := d.kube.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	must(err)
	if len(paths) > 0 {
		rule := rbacv1.PolicyRule{Verbs: []string{"post"}, NonResourceURLs: paths}
		subject := rbacv1.Subject{Kind: "ServiceAccount", Name: name, Namespace: "default"}
		_, err = d.kube.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		must(err)
		_, err = d.kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{subject},
		}, metav1.CreateOptions{})
		must(err)
		must(access.Await(ctx, d.config, "", subject, rule)) // a judge keeps a refusal for a while
	}
	token, err := d.kube.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	must(err)
	return token.Status.Token
}

// post sends a body and returns the status, and the answer's text.
func (d *door) post(path, token string, body []byte) (int, string) {
	d.Helper()
	return d.send(http.MethodPost, path, token, bytes.NewReader(body))
}

func (d *door) send(method, path, token string, body io.Reader) (int, string) {
	d.Helper()
	request, err := http.NewRequestWithContext(d.Context(), method, d.url+path, body)
	if err != nil {
		d.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := d.client.Do(request)
	if err != nil {
		d.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (d *door) called() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

func problem(t testing.TB, text string) frontdoor.Problem {
	t.Helper()
	var p frontdoor.Problem
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%q is no Problem: %v", text, err)
	}
	return p
}
