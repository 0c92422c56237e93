package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestChartsLintClean(t *testing.T) {
	for _, dir := range []string{mainChart, crdsChart} {
		out, err := helm(t).Lint(t.Context(), release(dir, nil))
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(out, "[WARNING]") {
			t.Errorf("%s", out)
		}
	}
}

// Each of these is a mistake that a user may make, and what of helm's answer must help.
func TestWrongValuesAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		values map[string]any
		want   string
	}{
		"unknown key":            {object{"replicaCount": 2}, "additional properties 'replicaCount' not allowed"},
		"unknown nested key":     {values(1, "settings", "qps"), "at '/settings': additional properties 'qps' not allowed"},
		"unknown gate":           {values(true, "settings", "featureGates", "NodeRepair"), "at '/settings/featureGates': additional properties 'NodeRepair' not allowed"},
		"text for a number":      {object{"replicas": "two"}, "at '/replicas': got string, want integer"},
		"text for a truth value": {values("yes", "serviceMonitor", "enabled"), "at '/serviceMonitor/enabled': got string, want boolean"},
		"number for a duration":  {values(10, "settings", "batchMaxDuration"), "at '/settings/batchMaxDuration': got number, want string"},
		"duration without unit":  {values("10", "settings", "batchMaxDuration"), "at '/settings/batchMaxDuration': '10' does not match pattern"},
		"unknown level":          {values("trace", "settings", "logLevel"), "at '/settings/logLevel': value must be one of 'error', 'info', 'debug'"},
		"unknown provider":       {values("aws", "cloudProvider", "name"), "at '/cloudProvider/name': value must be one of 'simulated', 'inventory'"},
		"port":                   {values(70000, "metrics", "port"), "at '/metrics/port': maximum: got 70,000, want 65,535"},
		"one port for two":       {values(8081, "metrics", "port"), "metrics.port and healthProbe.port are both 8081; they must differ"},
		"one port for webhooks":  {values(8080, "webhook", "port"), "webhook.port is 8080, which is metrics.port or healthProbe.port; it must differ"},
		"digest":                 {values("latest", "image", "digest"), "at '/image/digest': 'latest' does not match pattern"},
		"object name":            {object{"fullnameOverride": "My Spring"}, "at '/fullnameOverride': 'My Spring' does not match pattern"},
		"reader":                 {values(list{object{"name": "prometheus"}}, "metrics", "readers"), "at '/metrics/readers/0': missing property 'namespace'"},
		"no ServiceAccount":      {values(false, "serviceAccount", "create"), "serviceAccount.name must name an existing ServiceAccount"},
		"metrics without webhooks": {
			object{"serviceMonitor": object{"enabled": true}, "webhook": object{"enabled": false}}, "serviceMonitor.tlsConfig is empty, and without webhooks",
		},
		"metrics with another certificate": {
			object{"serviceMonitor": object{"enabled": true}, "metrics": object{"certificateSecret": "tls"}}, "serviceMonitor.tlsConfig is empty; with metrics.certificateSecret",
		},
		"metrics of agents": {
			object{"serviceMonitor": object{"enabled": true}, "agent": object{"enabled": true, "certificateSecret": "tls"}}, "serviceMonitor.agentTLSConfig is empty",
		},
		"unknown alert": {
			object{"prometheusRule": object{"enabled": true, "disabledAlerts": list{"MainspringNoSuchAlert"}}},
			`"MainspringNoSuchAlert", which is not an alert of this chart`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t).Template(t.Context(), release(mainChart, test.values))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v\nwant one with %q", err, test.want)
			}
		})
	}
	_, err := helm(t).Template(t.Context(), release(crdsChart, object{"any": 1}))
	if err == nil || !strings.Contains(err.Error(), "additional properties 'any' not allowed") {
		t.Errorf("a value of mainspring-crds: %v", err)
	}
}

// schema is the part of a JSON schema that the test reads.
type schema struct {
	Description          string            `json:"description"`
	Ref                  string            `json:"$ref"`
	Type                 string            `json:"type"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	Definitions          map[string]schema `json:"definitions"`
}

// TestValuesAndSchemaAgree walks both: each value is in the schema, each property is in values.yaml,
// and each is explained where a user reads it.
func TestValuesAndSchemaAgree(t *testing.T) {
	var root schema
	read(t, "values.schema.json", json.Unmarshal, &root)
	var file yaml.Node
	read(t, "values.yaml", yaml.Unmarshal, &file)
	delete(root.Properties, "global")
	agree(t, "", root, file.Content[0])
}

func read[T any](t *testing.T, name string, decode func([]byte, any) error, into *T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(mainChart, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := decode(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func agree(t *testing.T, path string, s schema, node *yaml.Node) {
	t.Helper()
	if string(s.AdditionalProperties) != "false" {
		t.Errorf("the schema of %q lets unknown keys pass", path)
	}
	var inFile []string
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := path + "." + key.Value
		inFile = append(inFile, key.Value)
		property, ok := s.Properties[key.Value]
		switch {
		case !ok:
			t.Errorf("values.yaml has %s, the schema does not", at)
		case property.Type == "object" && len(property.Properties) > 0 && key.HeadComment == "":
			agree(t, at, property, value)
		case key.HeadComment == "":
			t.Errorf("values.yaml does not explain %s", at)
		case property.Type == "object" && at == ".settings.featureGates":
			agree(t, at, property, value)
		}
	}
	for name := range s.Properties {
		if !slices.Contains(inFile, name) {
			t.Errorf("the schema has %s.%s, values.yaml does not", path, name)
		}
	}
}
