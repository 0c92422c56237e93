package kubelet_test

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/kubelet"
)

// serve is a kubelet that answers so; asked is what it was asked last.
func serve(t *testing.T, code int, text string) (c *kubelet.Client, asked *http.Request) {
	t.Helper()
	asked = &http.Request{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = *r
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := &rest.Config{Host: "https://plane:6443", BearerToken: "mine", TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
	c, err := kubelet.New(config, server.Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	return c, asked
}

func TestTheKubeletIsAskedForACheckpoint(t *testing.T) {
	c, asked := serve(t, http.StatusOK, `{"items":["/var/lib/kubelet/checkpoints/checkpoint-p_default-app-1.tar"]}`)
	path, err := c.Checkpoint(t.Context(), "default", "p", "app", 2*time.Minute)
	if err != nil || path != "/var/lib/kubelet/checkpoints/checkpoint-p_default-app-1.tar" {
		t.Fatalf("%q, %v", path, err)
	}
	if asked.Method != http.MethodPost || asked.URL.String() != "/checkpoint/default/p/app?timeout=120" || asked.Header.Get("Authorization") != "Bearer mine" {
		t.Errorf("it was asked %s %s as %q", asked.Method, asked.URL, asked.Header.Get("Authorization"))
	}
}

func TestAnAnswerWithoutOneArchiveIsAMistake(t *testing.T) {
	for _, text := range []string{"", "{}", `{"items":[]}`, `{"items":[""]}`, `{"items":["a","b"]}`} {
		c, _ := serve(t, http.StatusOK, text)
		if _, err := c.Checkpoint(t.Context(), "default", "p", "app", time.Minute); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	c, _ := serve(t, http.StatusInternalServerError, "criu failed\nand more")
	if _, err := c.Checkpoint(t.Context(), "default", "p", "app", time.Minute); err == nil || !strings.Contains(err.Error(), "500: criu failed") {
		t.Errorf("got %v", err)
	}
}

func TestWhetherTheKubeletLetsUs(t *testing.T) {
	for _, tc := range []struct {
		code int
		text string
		want error
	}{
		{http.StatusNotFound, "pod does not exist", nil},
		{http.StatusNotFound, "404 page not found", kubelet.ErrOff},
		{http.StatusForbidden, "Forbidden (user=agent, verb=create, resource=nodes, subresource=[checkpoint])", kubelet.ErrForbidden},
		{http.StatusUnauthorized, "Unauthorized", kubelet.ErrForbidden},
	} {
		c, _ := serve(t, tc.code, tc.text)
		if err := c.Allowed(t.Context()); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%d %s: %v, want %v", tc.code, tc.text, err, tc.want)
		}
	}
	c, _ := serve(t, http.StatusInternalServerError, "no")
	if err := c.Allowed(t.Context()); err == nil {
		t.Error("a kubelet that fails lets us")
	}
}

func TestWhetherTheKubeletEndsAPod(t *testing.T) {
	const pods = `{"kind":"PodList","items":[{"metadata":{"uid":"stays"}},{"metadata":{"uid":"ends","deletionTimestamp":"2026-11-29T01:02:03Z"}}]}`
	const cut = `{"kind":"PodList","metadata":{"items":[]},"items":[{"metadata":{"uid":"stays"}}`
	for _, tc := range []struct {
		code         int
		text, uid    string
		listed, ends bool
		want         string
	}{
		{code: http.StatusOK, text: pods, uid: "ends", listed: true, ends: true},
		{code: http.StatusOK, text: pods, uid: "stays", listed: true},
		{code: http.StatusOK, text: pods, uid: "another"},
		{code: http.StatusOK, text: `{"kind":"PodList","items":[]}`, uid: "ends"},
		{code: http.StatusOK, text: cut, uid: "stays", listed: true},
		{code: http.StatusOK, text: cut, uid: "ends", want: "reading the kubelet's pods"},
		{code: http.StatusOK, text: `{"kind":"PodList","items":null}`, uid: "ends", want: "it is no list of items"},
		{code: http.StatusOK, text: `{"kind":"Pod","metadata":{"items":[]}}`, uid: "ends", want: "it is no list of items"},
		{code: http.StatusOK, text: `"items"`, uid: "ends", want: "it is no list of items"},
		{code: http.StatusOK, text: "pods", uid: "ends", want: "reading the kubelet's pods"},
		{code: http.StatusForbidden, uid: "ends", want: "verb get on nodes/pods"},
		{code: http.StatusUnauthorized, uid: "ends", want: "it answers 401"},
		{code: http.StatusInternalServerError, uid: "ends", want: "it answers 500"},
	} {
		c, asked := serve(t, tc.code, tc.text)
		listed, ends, err := c.Terminating(t.Context(), types.UID(tc.uid))
		if listed != tc.listed || ends != tc.ends || (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%d %s of %q: %v, %v, %v", tc.code, tc.uid, tc.text, listed, ends, err)
		}
		if asked.Method != http.MethodGet || asked.URL.String() != "/pods" {
			t.Errorf("it was asked %s %s", asked.Method, asked.URL)
		}
	}
}

func TestAKubeletThatAnotherAuthoritySignedIsNotAsked(t *testing.T) {
	_, _ = serve(t, http.StatusOK, "")
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	c, err := kubelet.New(&rest.Config{Host: "https://plane:6443", BearerToken: "mine"}, server.Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Allowed(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}
