package operator

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/controllers/resourcepressure"
)

// What the SDI Migration Service takes for granted where nothing else is said.
const (
	defaultInfluxURL         = "http://influxdb.tbot-monitoring.svc.cluster.local:8086"
	defaultInfluxOrg         = "keti"
	defaultInfluxBucket      = "turtlebot"
	defaultPolicyEngineURL   = "http://policy-engine.orchestration-engines.svc.cluster.local:8080"
	defaultAnalysisEngineURL = "http://analysis-engine.orchestration-engines.svc.cluster.local:8080"
)

// use is whether something optional is used.
type use string

// Values of a use.
const (
	// useAuto: if an address of it was given.
	useAuto use = "auto"
	useOn   use = "on"
	useOff  use = "off"
)

// MigrationOptions are the settings of migrations. Those that the SDI Migration Service has are environment variables of the
// same name there: INFLUX_URL, INFLUX_ORG, INFLUX_BUCKET, INFLUX_TOKEN, POLICY_ENGINE_URL, ANALYSIS_ENGINE_URL,
// MIGRATION_CHECK_INTERVAL, RESOURCE_PRESSURE_THRESHOLD, ENABLE_CHECKPOINTING.
type MigrationOptions struct {
	// Namespaces are those whose pods are moved; allNamespaces alone: all are.
	Namespaces []string
	// Checkpointing is whether any pod may be moved with its state.
	Checkpointing bool
	// PolicyEngineURL is that of the policy engine where a MigrationPolicy names none; empty: none is asked.
	PolicyEngineURL string
	// AnalysisEngineURL is accepted and checked. The SDI Migration Service never asks it either.
	AnalysisEngineURL string
	// Pressure of CPU and memory, and what is done about it.
	Pressure resourcepressure.Options
	// Usage says how it is measured.
	Usage UsageOptions
	// Influx is the InfluxDB that finished migrations are written to.
	Influx InfluxOptions

	policyEngine use
}

func (o *MigrationOptions) addFlags(fs *options.FlagSet) {
	fs.Var(check(&o.Namespaces, []string{allNamespaces}, namespaces), "migration-namespaces", "Namespaces whose pods are moved, separated by commas; *: all, empty: none. The controller needs the right to make pods in these only")
	fs.Var(trueOrFalse(&o.Checkpointing, true), "enable-checkpointing", "Whether pods may be moved with their state (strategy Checkpoint) where nodes are able to")
	fs.Var(check(&o.PolicyEngineURL, defaultPolicyEngineURL, address), "policy-engine-url", "URL, without path, of the policy engine that is asked where a MigrationPolicy names none")
	fs.Var(check(&o.policyEngine, useAuto, oneOf(useAuto, useOn, useOff)), "policy-engine", "Whether that engine is asked: on, off, or auto: if its URL was given")
	fs.Var(check(&o.AnalysisEngineURL, defaultAnalysisEngineURL, address), "analysis-engine-url", "URL of the analysis engine of the SDI Migration Service. Accepted for its sake; nothing asks it")
	o.addPressureFlags(fs)
	o.Usage.addFlags(fs)
	o.Influx.addFlags(fs)
}

func (o *MigrationOptions) addPressureFlags(fs *options.FlagSet) {
	p, d := &o.Pressure, resourcepressure.Defaults()
	fs.Var(check(&p.Mode, d.Mode, oneOf(resourcepressure.Modes...)), "resource-pressure", "What is done about nodes that are short of CPU or memory: off: nothing; report: conditions, Events and metrics tell which pods would be moved where; migrate: they are moved")
	fs.Var(check(&p.Interval, d.Interval, seconds(time.Second, time.Hour)), "migration-check-interval", "How often the usage of nodes is looked at, in seconds or with a unit")
	fs.Var(check(&p.ThresholdPercent, d.ThresholdPercent, whole(1, 100, "a percentage")), "resource-pressure-threshold", "Usage of CPU or memory, in percent, above which a node is under resource pressure")
	fs.Var(check(&p.Samples, d.Samples, whole(1, 100, "a number")), "resource-pressure-samples", "How many readings in a row must be above the threshold")
	fs.Var(check(&p.PodsPerNode, d.PodsPerNode, whole(1, 100, "a number")), "resource-pressure-pods-per-node", "How many pods leave a node for resource pressure in one interval at most")
	fs.Var(check(&p.WorkloadCooldown, d.WorkloadCooldown, seconds(0, 24*time.Hour)), "resource-pressure-workload-cooldown", "How long the pods of a workload rest after one of them was moved for resource pressure")
	fs.Var(check(&p.PairCooldown, d.PairCooldown, seconds(0, 24*time.Hour)), "resource-pressure-pair-cooldown", "For how long no pod goes for resource pressure between two nodes between which one went")
}

// allNamespaces stands for every namespace.
const allNamespaces = "*"

// namespaces are names separated by commas, or allNamespaces.
func namespaces(text string) ([]string, error) {
	switch text {
	case "":
		return []string{}, nil
	case allNamespaces:
		return []string{allNamespaces}, nil
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return nil, fmt.Errorf("want * or names of namespaces separated by commas; %q is none: %s", name, problems[0])
		}
	}
	return names, nil
}

// complete puts together what depends on what was given, by flag or environment.
func (o *MigrationOptions) complete(fs *flag.FlagSet, lookup func(string) (string, bool)) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if o.policyEngine == useOff || o.policyEngine == useAuto && !given["policy-engine-url"] {
		o.PolicyEngineURL = ""
	}
	if !slices.Contains(o.Namespaces, allNamespaces) {
		o.Pressure.Namespaces = sets.New(o.Namespaces...)
	}
	if err := o.Influx.complete(given, lookup); err != nil {
		return err
	}
	return o.Usage.validate(o.Influx)
}

// readable refuses a file that is named and cannot be read.
func readable(flag, path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.ReadFile(path); err != nil {
		return fmt.Errorf("--%s is %q; it must be a file that can be read: %w", flag, path, err)
	}
	return nil
}
