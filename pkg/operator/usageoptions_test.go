package operator

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/karpenter/pkg/operator"

	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// secured is a server of TLS that keeps the credentials it is shown, and gives one answer; its certificate is in the file.
func secured(t *testing.T, answer string) (url, ca string, shown func() []string) {
	t.Helper()
	var seen []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.crt")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, ca, func() []string { return slices.Clone(seen) }
}

// token writes one into a file, as a Secret that changes does.
func token(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPrometheusIsAskedWithTheTokenAsItIsNow(t *testing.T) {
	url, ca, shown := secured(t, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"node":"a"},"value":[1767323045,"0.5"]}]}}`)
	file := filepath.Join(t.TempDir(), "token")
	token(t, file, "first")
	_, own, err := parse(t, "--usage-source=prometheus", "--usage-prometheus-url="+url, "--usage-prometheus-ca-file="+ca, "--usage-prometheus-token-file="+file)
	if err != nil {
		t.Fatal(err)
	}
	source, err := own.Migration.Usage.source(&operator.Operator{Clock: clock.RealClock{}}, own.Migration.Influx, time.Minute)
	if err != nil || source.Name() != usage.SourcePrometheus {
		t.Fatalf("%v, %v", source, err)
	}
	nodes := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	for _, text := range []string{"first", "second"} {
		token(t, file, text)
		found, err := source.Nodes(t.Context(), nodes)
		if err != nil || found["a"].CPU.Ratio != 0.5 {
			t.Errorf("%v, %v", found, err)
		}
	}
	if got := shown(); !slices.Equal(got, []string{"Bearer first", "Bearer first", "Bearer second", "Bearer second"}) {
		t.Errorf("shown %q", got)
	}
	// Without its certificate the server is not believed.
	own.Migration.Usage.PrometheusCAFile = ""
	source, err = own.Migration.Usage.source(&operator.Operator{Clock: clock.RealClock{}}, own.Migration.Influx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.Nodes(t.Context(), nodes); err == nil || len(shown()) != 4 {
		t.Errorf("a server that nobody knows was asked: %v", err)
	}
}

func TestInfluxDBIsWrittenToWithTheTokenAsItIsNow(t *testing.T) {
	url, ca, shown := secured(t, "")
	file := filepath.Join(t.TempDir(), "token")
	token(t, file, "first")
	_, own, err := parse(t, "--influx-url="+url, "--influx-ca-file="+ca, "--influx-token-file="+file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := own.Migration.Influx.client()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		token(t, file, text)
		if err := client.Write(t.Context(), []string{"m f=1i 1"}); err != nil {
			t.Error(err)
		}
	}
	if got := shown(); !slices.Equal(got, []string{"Token first", "Token second"}) {
		t.Errorf("shown %q", got)
	}
}
