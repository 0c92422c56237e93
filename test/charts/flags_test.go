package charts_test

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
)

// The programs of the chart's Deployments, built when they are needed first.
var (
	buildController = sync.OnceValues(func() (string, error) { return build("controller") })
	buildHollow     = sync.OnceValues(func() (string, error) { return build("hollow") })
)

// build returns a program, which is built into the folder that TestMain removes where the run has not built it.
func build(name string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	return programs.Path(ctx, workDir, name)
}

func controllerBinary(t *testing.T) string {
	t.Helper()
	binary, err := buildController()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// binaryFlags are the flags that the controller says it has.
func binaryFlags(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), controllerBinary(t), "--help").Output()
	if err != nil {
		t.Fatalf("asking the controller for its flags: %v", err)
	}
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^  -([a-z-]+)`).FindAllStringSubmatch(string(out), -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		t.Fatalf("the controller lists no flags:\n%s", out)
	}
	return names
}

type flagValue struct {
	path  string
	value any
	want  string
}

// flagValues lists for each flag a value of the chart, set to other than its default, and what the
// controller must then be given.
var flagValues = []flagValue{
	{"cloudProvider.name", "simulated", "--cloud-provider=simulated"},
	{"cloudProvider.catalogue", "types: []", "--catalogue-file=/etc/mainspring/catalogue/catalogue.yaml"},
	{"cloudProvider.instanceTypes", "[]", "--instance-types-file-path=/etc/mainspring/catalogue/instance-types.json"},
	{"cloudProvider.simulated.repairToleration", "1m30s", "--simulated-repair-toleration=1m30s"},
	{"cloudProvider.name", "inventory", "--cloud-provider=inventory"},
	{"cloudProvider.inventory.labels", list{"example.com/rack", "example.com/slot"}, "--inventory-labels=example.com/rack,example.com/slot"},
	{"cloudProvider.inventory.powerTimeout", "1m", "--inventory-power-timeout=1m"},
	{"cloudProvider.inventory.quarantine", "10m", "--inventory-quarantine=10m"},
	{"cloudProvider.inventory.repairToleration", "3m", "--inventory-repair-toleration=3m"},
	{"cloudProvider.inventory.programs", "programs", "--inventory-exec-directory=/etc/mainspring/programs"},
	{"settings.logLevel", "debug", "--log-level=debug"},
	{"settings.logOutputPaths", "stderr", "--log-output-paths=stderr"},
	{"settings.logErrorOutputPaths", "stdout", "--log-error-output-paths=stdout"},
	{"settings.batchMaxDuration", "20s", "--batch-max-duration=20s"},
	{"settings.batchIdleDuration", "500ms", "--batch-idle-duration=500ms"},
	{"settings.preferencePolicy", "Ignore", "--preference-policy=Ignore"},
	{"settings.minValuesPolicy", "BestEffort", "--min-values-policy=BestEffort"},
	{"settings.schedulerConfig", "podTopologySpread: {}\n", "--scheduler-config=podTopologySpread: {}\n"},
	{"settings.kubeClientQPS", 1000000, "--kube-client-qps=1000000"},
	{"settings.kubeClientBurst", 2000000, "--kube-client-burst=2000000"},
	{"settings.ignoreDRARequests", true, "--ignore-dra-requests=true"},
	{"settings.legacyNodeRepair", true, "--legacy-node-repair=true"},
	{"settings.disableControllerWarmup", false, "--disable-controller-warmup=false"},
	{"settings.disableClusterStateObservability", true, "--disable-cluster-state-observability=true"},
	{"settings.enableProfiling", true, "--enable-profiling=true"},
	{"settings.realtime.budgetGranularity", "250us", "--rt-budget-granularity=250us"},
	{"settings.realtime.preemptionDelay", "7s", "--rt-preemption-delay=7s"},
	{"settings.realtime.agentTimeout", "20s", "--rt-agent-timeout=20s"},
	{"settings.realtime.calibrationTimeout", "3m", "--rt-calibration-timeout=3m"},
	{"hollow.enabled", false, "--rt-calibration-timeout=0s"},
	{"settings.realtime.pressure.overruns", 9, "--rt-pressure-overruns=9"},
	{"settings.realtime.pressure.window", "20s", "--rt-pressure-window=20s"},
	{"settings.realtime.pressure.delay", "9s", "--rt-pressure-delay=9s"},
	{"settings.realtime.pressure.settle", "20s", "--rt-pressure-settle=20s"},
	{"settings.realtime.pressure.patience", "45s", "--rt-pressure-patience=45s"},
	{"settings.realtime.pressure.nodeTimeout", "10m", "--rt-pressure-node-timeout=10m"},
	{"settings.realtime.pressure.calm", "2m", "--rt-pressure-calm=2m"},
	{"settings.realtime.pressure.recoveryInterval", "30s", "--rt-pressure-recovery-interval=30s"},
	{"settings.repack.enabled", true, "--repack=true"},
	{"settings.repack.minSavingsPerMove", 0.25, "--repack-min-savings-per-move=0.25"},
	{"settings.queue.nodeLimit", 7, "--queue-node-limit=7"},
	{"settings.queue.namespaceLimit", 7, "--queue-namespace-limit=7"},
	{"settings.queue.clusterLimit", 7, "--queue-cluster-limit=7"},
	{"settings.queue.ageStep", "5m", "--queue-age-step=5m"},
	{"settings.migration.namespaces", list{"control", "vision"}, "--migration-namespaces=control,vision"},
	{"settings.migration.checkpointing", false, "--enable-checkpointing=false"},
	{"settings.migration.policyEngine.url", "http://engine:8080", "--policy-engine-url=http://engine:8080"},
	{"settings.migration.policyEngine.use", "off", "--policy-engine=off"},
	{"settings.migration.analysisEngineURL", "http://analysis:8080", "--analysis-engine-url=http://analysis:8080"},
	{"settings.migration.resourcePressure.mode", "migrate", "--resource-pressure=migrate"},
	{"settings.migration.resourcePressure.interval", "1m", "--migration-check-interval=1m"},
	{"settings.migration.resourcePressure.threshold", 75, "--resource-pressure-threshold=75"},
	{"settings.migration.resourcePressure.samples", 5, "--resource-pressure-samples=5"},
	{"settings.migration.resourcePressure.podsPerNode", 1, "--resource-pressure-pods-per-node=1"},
	{"settings.migration.resourcePressure.workloadCooldown", "1h", "--resource-pressure-workload-cooldown=1h"},
	{"settings.migration.resourcePressure.pairCooldown", "1m", "--resource-pressure-pair-cooldown=1m"},
	{"settings.migration.usage.source", "requests", "--usage-source=requests"},
	{"settings.migration.usage.timeout", "5s", "--usage-timeout=5s"},
	{"settings.migration.usage.prometheus.url", "https://prometheus:9090", "--usage-prometheus-url=https://prometheus:9090"},
	{"settings.migration.usage.prometheus.cpuQuery", "cpu[$age]", "--usage-prometheus-cpu-query=cpu[$age]"},
	{"settings.migration.usage.prometheus.memoryQuery", "memory", "--usage-prometheus-memory-query=memory"},
	{"settings.migration.usage.prometheus.tokenSecret", "prometheus", "--usage-prometheus-token-file=/etc/mainspring/prometheus-token/token"},
	{"settings.migration.usage.prometheus.caSecret", "prometheus", "--usage-prometheus-ca-file=/etc/mainspring/prometheus-ca/ca.crt"},
	{"settings.migration.usage.influx.cpuQuery", "cpu", "--usage-influx-cpu-query=cpu"},
	{"settings.migration.usage.influx.memoryQuery", "memory", "--usage-influx-memory-query=memory"},
	{"settings.migration.influx.url", "http://influx:8086", "--influx-url=http://influx:8086"},
	{"settings.migration.influx.org", "o", "--influx-org=o"},
	{"settings.migration.influx.bucket", "b", "--influx-bucket=b"},
	{"settings.migration.influx.write", "v1", "--influx-write=v1"},
	{"settings.migration.influx.caSecret", "ca", "--influx-ca-file=/etc/mainspring/influx-ca/ca.crt"},
	{"overrun.enabled", true, "--overrun-port=8090"},
	{"overrun", object{"enabled": true, "port": 9090}, "--overrun-port=9090"},
	{"overrun", object{"enabled": true, "certificateSecret": "tls"}, "--overrun-cert-dir=/etc/mainspring/overrun"},
	{"overrun", object{"enabled": true}, "--overrun-dns-names=mainspring." + namespace + ".svc"},
	{"webhook.enabled", false, "--webhook-port=0"},
	{"webhook.port", 9444, "--webhook-port=9444"},
	{"webhook.clientCAConfigMap", "apiservers", "--webhook-client-ca-file=/etc/mainspring/webhook-client-ca/ca.crt"},
	{"webhook.certificateValidity", "720h", "--webhook-cert-validity=720h"},
	{"webhook.evictionDeadline", "1h", "--webhook-eviction-deadline=1h"},
	{"webhook.certManager.enabled", true, "--webhook-cert-rotation=false"},
	{"settings.featureGates", map[string]any{}, "--feature-gates=" + defaultGates},
	{"metrics.port", 9090, "--metrics-port=9090"},
	{"metrics.certificateSecret", "tls", "--metrics-cert-dir=/etc/mainspring/metrics"},
	{"healthProbe.port", 9091, "--health-probe-port=9091"},
	{"leaderElection.name", "other", "--leader-election-name=other"},
	{"leaderElection.namespace", "elsewhere", "--leader-election-namespace=elsewhere"},
}

const defaultGates = "CapacityBuffer=false,NodeOverlay=true,NodeRepair=true,PodDeletionCostManagement=false,ReservedCapacity=true," +
	"SpotToSpotConsolidation=false,StaticCapacity=true,TerminateFirstDrift=false,TerminateFirstRepair=false"

// notValues are the flags that no value sets.
var notValues = map[string]string{
	"kubeconfig":                 "a pod uses the in-cluster configuration",
	"karpenter-service":          "names the Service of a webhook that the controller does not have",
	"memory-limit":               "comes from resources.limits.memory through the environment",
	"cpu-requests":               "comes from resources.requests.cpu through the environment",
	"disable-leader-election":    "see TestOneReplicaNeedsNoLeader",
	"influx-token-file":          "the token comes from settings.migration.influx.tokenSecret through the environment",
	"agent-certificates":         "is the agents' Service, see TestPrometheusVerifiesServers and TestRightsAreEnoughAndNeeded",
	"webhook-host":               "a pod listens on every address",
	"overrun-host":               "a pod listens on every address",
	"inventory-secret-namespace": "is the release's, see TestInventoryRights",
	"webhook-namespace":          "is the release's, see TestWebhooksAreTheReleasesOwn",
	"webhook-cert-secret":        "is named after the release, see TestWebhooksAreTheReleasesOwn",
	"webhook-dns-names":          "is the name of the Service, see TestWebhooksAreTheReleasesOwn",
	"webhook-configurations":     "are named after the release, see TestWebhooksAreTheReleasesOwn",
}

func arguments(t *testing.T, v map[string]any) []string {
	t.Helper()
	return deployment(t, v).Spec.Template.Spec.Containers[0].Args
}

// Values are set at once, because Helm takes a third of a second to start, but for those that change what others mean.
func TestEachValueSetsItsFlag(t *testing.T) {
	for rest := flagValues; len(rest) > 0; {
		all, now, later := object{}, []flagValue{}, []flagValue{}
		paths := map[string]bool{}
		for _, test := range rest {
			alone := !strings.Contains(test.path, ".") || strings.HasSuffix(test.path, ".enabled")
			if alone && len(now) > 0 || paths[test.path] || paths["alone"] {
				later = append(later, test)
				continue
			}
			paths[test.path], paths["alone"] = true, alone
			now = append(now, test)
			merge(all, values(test.value, strings.Split(test.path, ".")...))
		}
		got := arguments(t, all)
		for _, test := range now {
			if !slices.Contains(got, test.want) {
				t.Errorf("%s: argument %q is missing from %q", test.path, test.want, got)
			}
		}
		rest = later
	}
}

// merge puts the values into those that are there.
func merge(there, more object) {
	for key, value := range more {
		inner, isObject := value.(object)
		if below, ok := there[key].(object); ok && isObject {
			merge(below, inner)
		} else {
			there[key] = value
		}
	}
}

func TestEveryFlagOfTheBinaryHasAValue(t *testing.T) {
	known := map[string]bool{}
	for _, test := range flagValues {
		known[flagName(test.want)] = true
	}
	flags := binaryFlags(t)
	for _, flag := range flags {
		if _, justified := notValues[flag]; !known[flag] && !justified {
			t.Errorf("no value of the chart sets --%s", flag)
		}
	}
	for _, argument := range append(arguments(t, nil), "--memory-limit=", "--cpu-requests=") {
		if !slices.Contains(flags, flagName(argument)) {
			t.Errorf("the binary has no flag for argument %q", argument)
		}
	}
}

func flagName(argument string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
	return name
}

func TestEveryFeatureGateHasAValue(t *testing.T) {
	for _, gate := range karpenteroptions.KarpenterFeatureGates {
		name := strings.ToLower(gate.Name[:1]) + gate.Name[1:]
		got := arguments(t, values(!strings.Contains(defaultGates, gate.Name+"=true"), "settings", "featureGates", name))
		i := slices.IndexFunc(got, func(a string) bool { return flagName(a) == "feature-gates" })
		if strings.Contains(defaultGates, gate.Name+"=true") == strings.Contains(got[i], gate.Name+"=true") {
			t.Errorf("settings.featureGates.%s does not change %s", name, got[i])
		}
	}
	if got, want := strings.Count(defaultGates, "="), len(karpenteroptions.KarpenterFeatureGates); got != want {
		t.Errorf("the chart sets %d gates, Karpenter has %d", got, want)
	}
}

func TestOneReplicaNeedsNoLeader(t *testing.T) {
	alone := object{"replicas": 1, "leaderElection": object{"enabled": false}}
	if got := arguments(t, alone); !slices.Contains(got, "--disable-leader-election=true") {
		t.Errorf("leader election runs: %q", got)
	}
	for _, r := range template(t, alone).OfKind("Role") {
		if r.GetName() == "mainspring-leader-election" {
			t.Error("it may write the lease without need")
		}
	}
	_, err := helm(t).Template(t.Context(), release(mainChart, values(false, "leaderElection", "enabled")))
	if err == nil || !strings.Contains(err.Error(), "without a leader only 1 replica may run") {
		t.Errorf("two replicas without a leader: %v", err)
	}
}

func TestInvocationCarriesTheContainersLimits(t *testing.T) {
	i, err := chart.ControllerInvocation(template(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MEMORY_LIMIT=536870912", "CPU_REQUESTS=500"} {
		if !slices.Contains(i.Env, want) {
			t.Errorf("%s is missing from %q", want, i.Env)
		}
	}
	if i.Namespace != namespace || !slices.Contains(i.Args, "--leader-election-namespace="+namespace) {
		t.Errorf("it runs in %s with %q", i.Namespace, i.Args)
	}
}
