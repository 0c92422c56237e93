package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// rule is an alert as Prometheus and the PrometheusRule have it.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rules struct {
	Groups []group `json:"groups"`
}

func (r rules) all() []rule {
	var all []rule
	for _, g := range r.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// only returns the rules of some alerts.
func (r rules) only(wanted func(alert string) bool) rules {
	var out rules
	for _, g := range r.Groups {
		g.Rules = slices.DeleteFunc(slices.Clone(g.Rules), func(o rule) bool { return !wanted(o.Alert) })
		if len(g.Rules) > 0 {
			out.Groups = append(out.Groups, g)
		}
	}
	return out
}

// alerts renders the PrometheusRule.
func alerts(t *testing.T, prometheusRule object) rules {
	t.Helper()
	prometheusRule["enabled"] = true
	u := decode[unstructured.Unstructured](t, template(t, object{"prometheusRule": prometheusRule}), "PrometheusRule", "mainspring")
	data, err := yaml.Marshal(u.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	if err := yaml.UnmarshalStrict(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// promtool returns the program, or skips where it is not installed; in CI it has to be.
func promtool(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err == nil {
		return program
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%v: in CI the alerts have to be tested; install the package prometheus", err)
	}
	t.Skipf("%v: the alerts are NOT tested; install the package prometheus", err)
	return ""
}

func runPromtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), promtool(t), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func writeRules(t *testing.T, dir string, r rules) {
	t.Helper()
	data, err := yaml.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAlertsAreValidRules(t *testing.T) {
	dir := t.TempDir()
	writeRules(t, dir, alerts(t, object{}))
	runPromtool(t, dir, "check", "rules", "rules.yaml")
	// Without the Prometheus Operator the file is loaded as it is.
	runPromtool(t, mainChart, "check", "rules", "files/alerts.yaml")
}

// TestAlertsFireAndStaySilent runs the files of the folder alerts on the rules that the chart renders, each on the alerts that it names: promtool evaluates
// all rules that it is given at each minute of each case.
// The long annotations are left out: they are prose, and the summaries show that the templates work.
func TestAlertsFireAndStaySilent(t *testing.T) {
	rendered := alerts(t, object{})
	for _, r := range rendered.all() {
		delete(r.Annotations, "description")
		delete(r.Annotations, "runbook_url")
	}
	for _, file := range testFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			firing, silent := cases(t, file)
			writeRules(t, dir, rendered.only(func(alert string) bool { return firing[alert]+silent[alert] > 0 }))
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "tests.yaml"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			runPromtool(t, dir, "test", "rules", "tests.yaml")
		})
	}
}

func testFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("alerts/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the folder alerts has no tests: %v", err)
	}
	return files
}

// cases counts for each alert the cases of files in which it fires and in which it does not.
func cases(t *testing.T, files ...string) (firing, silent map[string]int) {
	t.Helper()
	firing, silent = map[string]int{}, map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var tests struct {
			Tests []struct {
				Rules []struct {
					Alert    string `json:"alertname"`
					Expected []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		if err := yaml.Unmarshal(data, &tests); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, test := range tests.Tests {
			for _, r := range test.Rules {
				if len(r.Expected) > 0 {
					firing[r.Alert]++
				} else {
					silent[r.Alert]++
				}
			}
		}
	}
	return firing, silent
}

func TestEveryAlertIsTestedBothWays(t *testing.T) {
	firing, silent := cases(t, testFiles(t)...)
	names := map[string]bool{}
	for _, r := range alerts(t, object{}).all() {
		names[r.Alert] = true
		if firing[r.Alert] == 0 || silent[r.Alert] == 0 {
			t.Errorf("%s has %d cases in which it fires and %d in which it does not", r.Alert, firing[r.Alert], silent[r.Alert])
		}
	}
	for name := range firing {
		if !names[name] {
			t.Errorf("%s is tested and does not exist", name)
		}
	}
}

func TestEveryAlertHelpsWhoeverIsWoken(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for _, match := range regexp.MustCompile(`(?m)^### (Mainspring\w+)\n\n(\w+)\. `).FindAllStringSubmatch(string(runbook), -1) {
		headings = append(headings, match[1]+" "+match[2])
	}
	all := alerts(t, object{}).all()
	for _, r := range all {
		severity := r.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s has severity %q", r.Alert, severity)
		}
		if !slices.Contains(headings, r.Alert+" "+severity) {
			t.Errorf("docs/alerts.md has no heading %s that begins with %q", r.Alert, severity)
		}
		if len(r.Annotations["summary"]) < 20 || len(r.Annotations["description"]) < 100 {
			t.Errorf("%s says too little", r.Alert)
		}
		if !strings.HasSuffix(r.Annotations["runbook_url"], "/docs/alerts.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s points to %s", r.Alert, r.Annotations["runbook_url"])
		}
	}
	if len(headings) != len(all) {
		t.Errorf("docs/alerts.md explains %d alerts, the chart has %d", len(headings), len(all))
	}
}

func TestAlertsCanBeRoutedAndLeftOut(t *testing.T) {
	everything := alerts(t, object{}).all()
	some := alerts(t, object{"disabledAlerts": list{"MainspringForbidden"}, "alertLabels": object{"team": "edge"}, "runbookURL": "https://wiki.example.com/a"}).all()
	if len(some) != len(everything)-1 {
		t.Errorf("%d alerts of %d are left", len(some), len(everything))
	}
	for _, r := range some {
		if r.Alert == "MainspringForbidden" || r.Labels["team"] != "edge" || r.Labels["severity"] == "" ||
			!strings.HasPrefix(r.Annotations["runbook_url"], "https://wiki.example.com/a#mainspring") {
			t.Errorf("%+v", r)
		}
	}
}

func TestAlertsReadTheReleasesOwnMetrics(t *testing.T) {
	manifests := template(t, object{"fullnameOverride": "edge", "prometheusRule": object{"enabled": true}, "serviceMonitor": object{"enabled": true}})
	text, err := yaml.Marshal(decode[unstructured.Unstructured](t, manifests, "PrometheusRule", "edge").Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	// Without a jobLabel the Prometheus Operator names a job after the Service.
	decode[unstructured.Unstructured](t, manifests, "Service", "edge")
	if strings.Contains(string(text), `job="mainspring`) || !strings.Contains(string(text), `job="edge"`) || !strings.Contains(string(text), `job="edge-agent"`) {
		t.Error("the alerts of another release's job are read")
	}
}
