package operator

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/mainspring-rt/mainspring/pkg/controllers/resourcepressure"
	"github.com/mainspring-rt/mainspring/pkg/influx"
	"github.com/mainspring-rt/mainspring/pkg/usage"
)

// Every setting of the SDI Migration Service has its name and its default, and nothing is switched on by defaults alone.
func TestMigrationDefaults(t *testing.T) {
	_, own, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	m := own.Migration
	if m.Influx.URL != "http://influxdb.tbot-monitoring.svc.cluster.local:8086" || m.Influx.Org != "keti" || m.Influx.Bucket != "turtlebot" || m.Influx.Write != influxOff {
		t.Errorf("InfluxDB is %+v", m.Influx)
	}
	if m.AnalysisEngineURL != "http://analysis-engine.orchestration-engines.svc.cluster.local:8080" || m.PolicyEngineURL != "" || !m.Checkpointing {
		t.Errorf("got %+v", m)
	}
	if m.Pressure.Interval != 30*time.Second || m.Pressure.ThresholdPercent != 85 || m.Pressure.Mode != resourcepressure.ModeReport || m.Usage.Source != usage.SourceMetricsAPI {
		t.Errorf("pressure is %+v, usage %+v", m.Pressure, m.Usage)
	}
	_, own, err = parse(t, "--policy-engine=on")
	if err != nil || own.Migration.PolicyEngineURL != "http://policy-engine.orchestration-engines.svc.cluster.local:8080" {
		t.Errorf("%v, %q", err, own.Migration.PolicyEngineURL)
	}
}

func TestMigrationNamespaces(t *testing.T) {
	for args, want := range map[string]sets.Set[string]{
		"":                                      nil,
		"--migration-namespaces=*":              nil,
		"--migration-namespaces=":               sets.New[string](),
		"--migration-namespaces=control,vision": sets.New("control", "vision"),
	} {
		_, own, err := parse(t, strings.Fields(args)...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		if got := own.Migration.migrations("kube-system", true).Namespaces; (got == nil) != (want == nil) || !got.Equal(want) {
			t.Errorf("%q: pods of %v are moved, want %v", args, got, want)
		}
	}
}

// A ConfigMap and a Secret of the SDI Migration Service, as they are.
func TestMigrationEnvironmentOfTheSDIMigrationService(t *testing.T) {
	for name, value := range map[string]string{
		"INFLUX_URL": "http://influx:8086/", "INFLUX_ORG": "o", "INFLUX_BUCKET": "b", "INFLUX_TOKEN": "tok-en==", "POLICY_ENGINE_URL": "http://policy:8080",
		"ANALYSIS_ENGINE_URL": "https://analysis", "MIGRATION_CHECK_INTERVAL": "45", "RESOURCE_PRESSURE_THRESHOLD": "75", "ENABLE_CHECKPOINTING": "False",
	} {
		t.Setenv(name, value)
	}
	_, own, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	m := own.Migration
	if m.Influx.URL != "http://influx:8086" || m.Influx.Org != "o" || m.Influx.Bucket != "b" || m.Influx.Write != influx.ModeV2 {
		t.Errorf("InfluxDB is %+v", m.Influx)
	}
	if m.PolicyEngineURL != "http://policy:8080" || m.AnalysisEngineURL != "https://analysis" || m.Checkpointing || m.Pressure.Interval != 45*time.Second || m.Pressure.ThresholdPercent != 75 {
		t.Errorf("got %+v", m)
	}
	for _, form := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(form, *own); strings.Contains(text, "tok-en") {
			t.Errorf("the token shows in %s", form)
		}
	}
	client, err := m.Influx.client()
	if err != nil {
		t.Fatal(err)
	}
	if token, err := client.Token(); err != nil || token != "tok-en==" {
		t.Errorf("%q, %v", token, err)
	}
	_, own, err = parse(t, "--policy-engine=off", "--influx-write=v1", "--migration-check-interval=1m30s")
	if err != nil || own.Migration.PolicyEngineURL != "" || own.Migration.Influx.Write != influx.ModeV1 || own.Migration.Pressure.Interval != 90*time.Second {
		t.Errorf("%v, %+v", err, own.Migration)
	}
}

// Each refusal names the variable or flag, the value, and what would be right.
func TestMigrationSettingsThatAreRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		want []string
	}{
		"interval":           {env: map[string]string{"MIGRATION_CHECK_INTERVAL": "soon"}, want: []string{"MIGRATION_CHECK_INTERVAL", `"soon"`, "seconds as a number"}},
		"interval too short": {env: map[string]string{"MIGRATION_CHECK_INTERVAL": "0"}, want: []string{"MIGRATION_CHECK_INTERVAL", `"0"`, "from 1s to 1h"}},
		"interval too long":  {env: map[string]string{"MIGRATION_CHECK_INTERVAL": "9223372036854775807"}, want: []string{"9223372036854775807", "from 1s to 1h"}},
		"negative interval":  {env: map[string]string{"MIGRATION_CHECK_INTERVAL": "-30"}, want: []string{`"-30"`, "from 1s to 1h"}},
		"threshold":          {env: map[string]string{"RESOURCE_PRESSURE_THRESHOLD": "85%"}, want: []string{"RESOURCE_PRESSURE_THRESHOLD", `"85%"`, "a percentage from 1 to 100"}},
		"threshold too high": {env: map[string]string{"RESOURCE_PRESSURE_THRESHOLD": "850"}, want: []string{"RESOURCE_PRESSURE_THRESHOLD", `"850"`, "from 1 to 100"}},
		"checkpointing":      {env: map[string]string{"ENABLE_CHECKPOINTING": "yes"}, want: []string{"ENABLE_CHECKPOINTING", `"yes"`, "true or false"}},
		"namespaces":         {args: []string{"--migration-namespaces=control,Vision"}, want: []string{"migration-namespaces", `"Vision"`, "names of namespaces"}},
		"all and one":        {env: map[string]string{"MIGRATION_NAMESPACES": "*,control"}, want: []string{"MIGRATION_NAMESPACES", `"*"`, "want * or names"}},
		"influx":             {env: map[string]string{"INFLUX_URL": "influxdb:8086"}, want: []string{"INFLUX_URL", `"influxdb:8086"`, "http://service"}},
		"influx credentials": {env: map[string]string{"INFLUX_URL": "http://u:p@influxdb:8086"}, want: []string{"INFLUX_URL", "without credentials"}},
		"policy engine":      {env: map[string]string{"POLICY_ENGINE_URL": "ftp://policy"}, want: []string{"POLICY_ENGINE_URL", `"ftp://policy"`, "http://service"}},
		"analysis engine":    {env: map[string]string{"ANALYSIS_ENGINE_URL": "http://"}, want: []string{"ANALYSIS_ENGINE_URL", `"http://"`, "http://service"}},
		"token placeholder":  {env: map[string]string{"INFLUX_TOKEN": "<put the token here>"}, want: []string{"INFLUX_TOKEN", "not shown", "the token itself"}},
		"no token":           {env: map[string]string{"INFLUX_URL": "http://influx:8086"}, want: []string{"INFLUX_TOKEN", "wants a token", "--influx-write=v1 where the server is InfluxDB 1.x", "--influx-write=off"}},
		"two tokens":         {env: map[string]string{"INFLUX_TOKEN": "t0ken"}, args: []string{"--influx-token-file=" + empty}, want: []string{"INFLUX_TOKEN", "--influx-token-file", "one of them"}},
		"no bucket":          {args: []string{"--influx-bucket="}, want: []string{"--influx-bucket is empty"}},
		"no organization":    {env: map[string]string{"INFLUX_TOKEN": "t0ken"}, args: []string{"--influx-org="}, want: []string{"--influx-org is empty"}},
		"token file":         {args: []string{"--influx-token-file=/does/not/exist"}, want: []string{"--influx-token-file", "/does/not/exist"}},
		"certificates":       {args: []string{"--influx-ca-file=" + empty}, want: []string{"--influx-ca-file", "PEM"}},
		"influx mode":        {args: []string{"--influx-write=v3"}, want: []string{"influx-write", "v3", "auto off v1 v2"}},
		"mode":               {env: map[string]string{"RESOURCE_PRESSURE": "on"}, want: []string{"RESOURCE_PRESSURE", `"on"`, "off report migrate"}},
		"source":             {args: []string{"--usage-source=top"}, want: []string{"usage-source", "top", "metrics.k8s.io prometheus influxdb requests"}},
		"no prometheus":      {args: []string{"--usage-source=prometheus"}, want: []string{"--usage-prometheus-url is empty"}},
		"no query":           {args: []string{"--usage-source=prometheus", "--usage-prometheus-url=http://p", "--usage-prometheus-cpu-query="}, want: []string{"cpu-query", "wants both"}},
		"token in the clear": {args: []string{"--usage-prometheus-url=http://p", "--usage-prometheus-token-file=" + empty}, want: []string{"--usage-prometheus-url", "https"}},
		"no flux":            {args: []string{"--usage-source=influxdb"}, want: []string{"--usage-influx-cpu-query", "Flux"}},
		"flux without token": {args: []string{"--usage-source=influxdb", "--usage-influx-cpu-query=x", "--usage-influx-memory-query=x"}, want: []string{"INFLUX_TOKEN", "wants a token"}},
		"samples":            {args: []string{"--resource-pressure-samples=0"}, want: []string{"resource-pressure-samples", `"0"`, "from 1 to 100"}},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			_, _, err := parse(t, tc.args...)
			if !IsUsageError(err) {
				t.Fatalf("got %v, want a usage error", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %s", err, want)
				}
			}
			if strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "t0ken") || strings.Contains(err.Error(), "u:p@") && name != "influx credentials" {
				t.Errorf("%q", err)
			}
		})
	}
}

func TestMigrationFlagsAreListed(t *testing.T) {
	var out bytes.Buffer
	_, _, _ = parseOptions(t.Context(), []string{"--help"}, &out)
	for _, want := range []string{"-influx-url", "-migration-check-interval", "default report", "default 30s", "default 85"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help does not list %s", want)
		}
	}
	if strings.Contains(out.String(), "-influx-token ") {
		t.Error("there is a flag for the token")
	}
}
