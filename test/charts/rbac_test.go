package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/servingcert"
)

// everythingValues switch on all that a role depends on.
func everythingValues(more object) object {
	v := object{
		"settings": object{
			"schedulerConfig": "podTopologySpread:\n  defaultConstraints:\n  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}\n",
			"featureGates":    object{"capacityBuffer": true, "podDeletionCostManagement": true},
		},
		"metrics": object{"readers": list{object{"name": "prometheus", "namespace": "default"}}},
		"agent":   object{"enabled": true, "callers": list{object{"name": "tuner", "namespace": "default"}}},
		"overrun": object{"enabled": true, "callers": list{object{"name": "tuner", "namespace": "default"}}},
	}
	maps.Copy(v, more)
	return v
}

// everything renders every role that the chart can.
func everything(t *testing.T, more object) chart.Manifests {
	t.Helper()
	return template(t, everythingValues(more))
}

// role is a Role or, where it has no namespace, a ClusterRole.
type role struct {
	name, namespace string
	rules           []rbacv1.PolicyRule
	manifest        chart.Manifest
}

func roles(t *testing.T, manifests chart.Manifests) []role {
	t.Helper()
	var found []role
	for _, m := range manifests.OfKind("ClusterRole") {
		r := decode[rbacv1.ClusterRole](t, manifests, "ClusterRole", m.GetName())
		found = append(found, role{m.GetName(), "", r.Rules, m})
	}
	for _, m := range manifests.OfKind("Role") {
		r := decode[rbacv1.Role](t, manifests, "Role", m.GetName())
		found = append(found, role{m.GetName(), m.GetNamespace(), r.Rules, m})
	}
	if len(found) == 0 {
		t.Fatal("the chart renders no roles")
	}
	return found
}

// forbidden would each allow more than the controller is for.
var forbidden = []string{
	"*", "cluster-admin", "configmaps", "serviceaccounts", "serviceaccounts/token",
	"pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers", "nodes/proxy", "services/proxy",
	"roles", "clusterroles", "rolebindings", "clusterrolebindings", "customresourcedefinitions",
	"escalate", "bind", "impersonate", "deletecollection",
}

// onlyNamed may be touched, if at all, by the names of the release's own.
var onlyNamed = []string{"secrets", "signers", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}

func TestRolesAllowNothingBroad(t *testing.T) {
	for _, r := range roles(t, everything(t, nil)) {
		for _, rule := range r.rules {
			for _, resource := range rule.Resources {
				ours := func(name string) bool { return strings.HasPrefix(name, "mainspring") || name == servingcert.SignerName }
				if resource == "signers" && !slices.Equal(rule.ResourceNames, []string{servingcert.SignerName}) {
					t.Errorf("role %s may %v requests of the signers %q", r.name, rule.Verbs, rule.ResourceNames)
				}
				if slices.Contains(onlyNamed, resource) && (len(rule.ResourceNames) == 0 || !slices.ContainsFunc(rule.ResourceNames, ours)) {
					t.Errorf("role %s allows %v on every object of %s", r.name, rule.Verbs, resource)
				}
			}
			for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs, rule.ResourceNames) {
				if slices.Contains(forbidden, word) || strings.Contains(word, "*") {
					t.Errorf("role %s has %q in %v", r.name, word, rule)
				}
			}
		}
	}
}

func TestRolesAreBoundToTheControllerOnly(t *testing.T) {
	manifests := everything(t, nil)
	own := map[string]bool{}
	for _, r := range roles(t, manifests) {
		own[r.name] = true
	}
	for _, m := range slices.Concat(manifests.OfKind("ClusterRoleBinding"), manifests.OfKind("RoleBinding")) {
		binding := decode[rbacv1.ClusterRoleBinding](t, manifests, m.GetKind(), m.GetName())
		if !own[binding.RoleRef.Name] {
			t.Errorf("%s binds %s, which is not the chart's", m.GetName(), binding.RoleRef.Name)
		}
		for _, subject := range binding.Subjects {
			who := subject.Kind + " " + subject.Namespace + "/" + subject.Name
			reader := m.GetName() == "mainspring-metrics-reader" && who == "ServiceAccount default/prometheus"
			agents := m.GetName() == "mainspring-hollow" && who == "ServiceAccount "+namespace+"/mainspring-hollow"
			real := m.GetName() == "mainspring-agent" && who == "ServiceAccount "+namespace+"/mainspring-agent"
			caller := (m.GetName() == "mainspring-set-rt" || m.GetName() == "mainspring-overrun") && who == "ServiceAccount default/tuner"
			if !reader && !agents && !real && !caller && who != "ServiceAccount "+namespace+"/mainspring" {
				t.Errorf("%s gives %s to %s", m.GetName(), binding.RoleRef.Name, who)
			}
		}
	}
}

// A rule without a reason is one that nobody dares to remove.
func TestEveryRuleSaysWhatItIsFor(t *testing.T) {
	for _, r := range roles(t, everything(t, nil)) {
		var document struct {
			Rules yaml.Node `yaml:"rules"`
		}
		if err := yaml.Unmarshal(r.manifest.Source, &document); err != nil {
			t.Fatal(err)
		}
		if len(document.Rules.Content) != len(r.rules) {
			t.Fatalf("role %s has %d rules and %d in its text", r.name, len(r.rules), len(document.Rules.Content))
		}
		for i, rule := range document.Rules.Content {
			if rule.HeadComment == "" {
				t.Errorf("nothing says what rule %v of %s is for", r.rules[i], r.name)
			}
		}
	}
}

func TestRightsFollowTheSettings(t *testing.T) {
	for name, test := range map[string]struct {
		values   map[string]any
		resource string
		want     bool
	}{
		"overlays":            {nil, "nodeoverlays", true},
		"no overlays":         {values(false, "settings", "featureGates", "nodeOverlay"), "nodeoverlays", false},
		"claims":              {nil, "deviceclasses", true},
		"no claims":           {values(true, "settings", "ignoreDRARequests"), "deviceclasses", false},
		"webhooks":            {nil, "secrets", true},
		"no webhooks":         {values(false, "webhook", "enabled"), "secrets", false},
		"agents":              {values(true, "agent", "enabled"), "signers", true},
		"no agents":           {nil, "signers", false},
		"agents' own Secret":  {object{"agent": object{"enabled": true, "certificateSecret": "tls"}}, "certificatesigningrequests", false},
		"cert-manager":        {object{"agent": object{"enabled": true}, "webhook": object{"certManager": object{"enabled": true}}}, "certificatesigningrequests", false},
		"no buffers":          {nil, "capacitybuffers", false},
		"buffers":             {values(true, "settings", "featureGates", "capacityBuffer"), "podtemplates", true},
		"no scheduler config": {nil, "services", false},
		"scheduler config":    {values("podTopologySpread: {}", "settings", "schedulerConfig"), "services", true},
	} {
		t.Run(name, func(t *testing.T) {
			got := false
			for _, r := range roles(t, template(t, test.values)) {
				for _, rule := range r.rules {
					got = got || slices.Contains(rule.Resources, test.resource)
				}
			}
			if got != test.want {
				t.Errorf("rights on %s: %t, want %t", test.resource, got, test.want)
			}
		})
	}
}

// The controller makes pods only where pods are moved.
func TestPodsAreMadeInNamespacesOfMigrations(t *testing.T) {
	for name, test := range map[string]struct {
		namespaces list
		want       []string // kinds and namespaces of the bindings
	}{
		"all":  {list{"*"}, []string{"ClusterRoleBinding "}},
		"two":  {list{"control", "vision"}, []string{"RoleBinding control", "RoleBinding vision"}},
		"none": {list{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			manifests := template(t, values(test.namespaces, "settings", "migration", "namespaces"))
			makes := map[string]bool{}
			for _, r := range roles(t, manifests) {
				for _, rule := range r.rules {
					if slices.Contains(rule.Resources, "pods") && slices.Contains(rule.Verbs, "create") {
						makes[r.name] = true
					}
				}
			}
			var got []string
			for _, m := range slices.Concat(manifests.OfKind("ClusterRoleBinding"), manifests.OfKind("RoleBinding")) {
				if role, _, _ := unstructured.NestedString(m.Object, "roleRef", "name"); makes[role] {
					got = append(got, m.GetKind()+" "+m.GetNamespace())
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("pods may be made by %q, want %q", got, test.want)
			}
		})
	}
}

// Tokens of policy engines are read from Secrets that somebody has named, and from no other.
func TestTokensAreReadFromNamedSecretsOnly(t *testing.T) {
	r := decode[rbacv1.Role](t, template(t, values(list{"engine", "other"}, "migrationPolicies", "tokenSecrets")), "Role", "mainspring-migrationpolicies")
	if len(r.Rules) != 1 || !slices.Equal(r.Rules[0].Verbs, []string{"get"}) || !slices.Equal(r.Rules[0].ResourceNames, []string{"engine", "other"}) || r.Namespace != namespace {
		t.Errorf("%s: %+v", r.Namespace, r.Rules)
	}
	for _, m := range template(t, nil).OfKind("Role") {
		if m.GetName() == "mainspring-migrationpolicies" {
			t.Error("a Role without a Secret")
		}
	}
}

func TestLeaseRightsAreForOneLease(t *testing.T) {
	manifests := template(t, object{"leaderElection": object{"name": "other", "namespace": "elsewhere"}})
	r := decode[rbacv1.Role](t, manifests, "Role", "mainspring-leader-election")
	if r.Namespace != "elsewhere" {
		t.Errorf("the Role is in %s", r.Namespace)
	}
	for _, rule := range r.Rules {
		if !slices.Equal(rule.Verbs, []string{"create"}) && !slices.Equal(rule.ResourceNames, []string{"other"}) {
			t.Errorf("rule %v is for more than the lease", rule)
		}
	}
}
