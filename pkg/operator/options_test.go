package operator

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/karpenter/pkg/operator/options"
)

func parse(t *testing.T, args ...string) (context.Context, *Options, error) {
	t.Helper()
	return parseOptions(context.Background(), args, &bytes.Buffer{})
}

func TestParseOptionsDefaults(t *testing.T) {
	ctx, own, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if options.FromContext(ctx).IgnoreDRARequests {
		t.Error("DRA requests are ignored by default: pods with claims would never get a node")
	}
	if got := options.FromContext(ctx).LeaderElectionName; got != "mainspring-leader-election" {
		t.Errorf("leader election name is %q", got)
	}
	if own.CloudProvider != ProviderSimulated || own.SimulatedRepairToleration != 30*time.Second {
		t.Errorf("own defaults are %+v", own)
	}
}

func TestParseOptionsPrecedence(t *testing.T) {
	t.Setenv("METRICS_PORT", "9001")
	t.Setenv("HEALTH_PROBE_PORT", "9002")
	t.Setenv("IGNORE_DRA_REQUESTS", "true")
	t.Setenv("SIMULATED_REPAIR_TOLERATION", "7s")
	ctx, own, err := parse(t, "--metrics-port=9003", "--feature-gates=NodeRepair=true,NodeOverlay=true")
	if err != nil {
		t.Fatal(err)
	}
	o := options.FromContext(ctx)
	if o.MetricsPort != 9003 {
		t.Errorf("metrics port is %d: a flag must win over the environment", o.MetricsPort)
	}
	if o.HealthProbePort != 9002 || !o.IgnoreDRARequests || own.SimulatedRepairToleration != 7*time.Second {
		t.Errorf("environment was not read: %d %v %s", o.HealthProbePort, o.IgnoreDRARequests, own.SimulatedRepairToleration)
	}
	if !o.FeatureGates.NodeRepair || !o.FeatureGates.NodeOverlay || o.FeatureGates.StaticCapacity || !o.FeatureGates.ReservedCapacity {
		t.Errorf("gates are %+v", o.FeatureGates)
	}
}

// The variables of the KCloud Workload Optimizer set our flags, where nothing of ours does.
func TestVariablesOfTheWorkloadOptimizer(t *testing.T) {
	for name, value := range map[string]string{
		"METRICS_BIND_ADDRESS": ":9001", "HEALTH_PROBE_BIND_ADDRESS": "0.0.0.0:9002", "LEADER_ELECTION": "false", "LEADER_ELECTION_ID": "kcloud", "LOG_LEVEL": "debug",
		"WATCH_NAMESPACE": "", "POD_NAME": "operator-0", "OPERATOR_NAME": "kcloud-operator", "CORE_SCHEDULER_URL": "http://core-scheduler:8080",
	} {
		t.Setenv(name, value)
	}
	expect := func(metrics, probes int, name string, args ...string) {
		t.Helper()
		ctx, _, err := parse(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		o := options.FromContext(ctx)
		if o.MetricsPort != metrics || o.HealthProbePort != probes || !o.DisableLeaderElection || o.LeaderElectionName != name || o.LogLevel != "debug" {
			t.Errorf("ports %d and %d, leader election %t by %q, log level %s", o.MetricsPort, o.HealthProbePort, !o.DisableLeaderElection, o.LeaderElectionName, o.LogLevel)
		}
	}
	expect(9001, 9002, "kcloud")
	t.Setenv("METRICS_PORT", "9003") // a variable of ours comes first, and a flag before it
	t.Setenv("LEADER_ELECTION_NAME", "ours")
	expect(9003, 9004, "ours", "--health-probe-port=9004")
}

func TestParseOptionsRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		want []string
	}{
		"unknown flag":           {args: []string{"--metrics-prot=1"}, want: []string{"metrics-prot", "--help"}},
		"bad value":              {args: []string{"--metrics-port=many"}, want: []string{"metrics-port", "many"}},
		"bad variable":           {env: map[string]string{"METRICS_PORT": "many"}, want: []string{"METRICS_PORT", "many"}},
		"one namespace":          {env: map[string]string{"WATCH_NAMESPACE": "shop"}, want: []string{"WATCH_NAMESPACE", "shop", "all namespaces"}},
		"address of a host":      {env: map[string]string{"METRICS_BIND_ADDRESS": "127.0.0.1:8080"}, want: []string{"METRICS_BIND_ADDRESS", "127.0.0.1:8080", ":8080"}},
		"no address":             {env: map[string]string{"HEALTH_PROBE_BIND_ADDRESS": "0"}, want: []string{"HEALTH_PROBE_BIND_ADDRESS", "\"0\"", ":8080"}},
		"port of an address":     {env: map[string]string{"METRICS_BIND_ADDRESS": ":many"}, want: []string{"METRICS_BIND_ADDRESS", "many"}},
		"bad leader election":    {env: map[string]string{"LEADER_ELECTION": "maybe"}, want: []string{"LEADER_ELECTION", "maybe", "true or false"}},
		"repack":                 {args: []string{"--repack-min-savings-per-move=-1"}, want: []string{"--repack-min-savings-per-move is -1", "0 to 1e+06"}},
		"repack by no number":    {args: []string{"--repack-min-savings-per-move=NaN"}, want: []string{"--repack-min-savings-per-move is NaN"}},
		"bad boolean variable":   {env: map[string]string{"IGNORE_DRA_REQUESTS": "maybe"}, want: []string{"IGNORE_DRA_REQUESTS", "maybe", "true or false"}},
		"bad log level":          {args: []string{"--log-level=loud"}, want: []string{"loud"}},
		"bad gate":               {args: []string{"--feature-gates=NodeRepair=perhaps"}, want: []string{"NodeRepair", "perhaps"}},
		"unknown gate":           {args: []string{"--feature-gates=NodeRepiar=true"}, want: []string{"NodeRepiar", "NodeRepair"}},
		"port out of range":      {args: []string{"--metrics-port=99999"}, want: []string{"--metrics-port", "99999", "65535"}},
		"no certificate":         {args: []string{"--metrics-cert-dir=/does/not/exist"}, want: []string{"--metrics-cert-dir", "/does/not/exist", "tls.crt"}},
		"unknown cloud provider": {args: []string{"--cloud-provider=moon"}, want: []string{"--cloud-provider", "moon", "simulated"}},
		"negative toleration":    {args: []string{"--simulated-repair-toleration=-1s"}, want: []string{"--simulated-repair-toleration", "-1s", "longer than 0"}},
		"no lease namespace":     {args: []string{"--kubeconfig=/some/file"}, want: []string{"--leader-election-namespace", "namespace of the lease"}},
		"granularity":            {args: []string{"--rt-budget-granularity=1500ns"}, want: []string{"--rt-budget-granularity", "1.5µs", "whole microseconds"}},
		"preemption delay":       {args: []string{"--rt-preemption-delay=-1s"}, want: []string{"--rt-preemption-delay", "-1s", "0s to 1h"}},
		"queue limit":            {args: []string{"--queue-cluster-limit=0"}, want: []string{"--queue-cluster-limit is 0", "at least 1"}},
		"queue age step":         {args: []string{"--queue-age-step=1ms"}, want: []string{"--queue-age-step is 1ms", "1s to 24h"}},
		"agent timeout":          {args: []string{"--rt-agent-timeout=10ms"}, want: []string{"--rt-agent-timeout", "10ms", "1s to 1h"}},
		"overrun port":           {args: []string{"--overrun-port=70000"}, want: []string{"--overrun-port", "70000", "65535"}},
		"overrun certificate":    {args: []string{"--overrun-port=8090", "--overrun-cert-dir=/does/not/exist"}, want: []string{"--overrun-cert-dir", "/does/not/exist", "tls.crt"}},
		"overrun names":          {args: []string{"--overrun-port=8090", "--overrun-dns-names=a,"}, want: []string{"--overrun-dns-names", `""`}},
		"stray argument":         {args: []string{"now"}, want: []string{`"now"`}},
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
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
		})
	}
}

func TestParseOptionsHelp(t *testing.T) {
	var out bytes.Buffer
	_, _, err := parseOptions(context.Background(), []string{"--help"}, &out)
	if !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"-cloud-provider", "-feature-gates", "-kubeconfig"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help does not list %s", want)
		}
	}
}

func TestLoadConfigNamesTheFile(t *testing.T) {
	_, err := loadConfig("/does/not/exist")
	if !IsUsageError(err) || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("got %v", err)
	}
}

func TestLogPathsThatCannotBeWritten(t *testing.T) {
	ctx, _, err := parse(t, "--log-output-paths=/does/not/exist/log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := withLogger(ctx); !IsUsageError(err) || !strings.Contains(err.Error(), "/does/not/exist/log") {
		t.Errorf("got %v", err)
	}
}
