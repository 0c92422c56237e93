package webhooks_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

func migrationPolicy(expression string) *v1alpha1.MigrationPolicy {
	return &v1alpha1.MigrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "calm"},
		Spec:       v1alpha1.MigrationPolicySpec{Rules: []v1alpha1.MigrationRule{{Name: "r", Expression: expression, Action: v1alpha1.RuleDeny}}},
	}
}

// What the cache lacks does not matter to a policy.
func TestPoliciesThatCannotBeUsedAreRefused(t *testing.T) {
	w := &world{unsynced: errLists}
	if r := ask(t, w, webhooks.PathValidateMigrationPolicies, "MigrationPolicy", migrationPolicy(`trigger == "Cost"`)); !r.Allowed {
		t.Errorf("%+v", r.Result)
	}
	r := ask(t, w, webhooks.PathValidateMigrationPolicies, "MigrationPolicy", migrationPolicy(`pod.metadata.lables == null`))
	if r.Allowed || r.Result.Code != http.StatusUnprocessableEntity {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{"spec.rules[0].expression", "line 1, column 13", "undefined field 'lables'", "did you mean labels?"} {
		if !strings.Contains(r.Result.Message, want) {
			t.Errorf("%s\nlacks %q", r.Result.Message, want)
		}
	}
	if r := send(t, w, webhooks.PathValidateMigrationPolicies, "MigrationPolicy", []byte(`{"spec":3}`)); r.Allowed || r.Result.Code != http.StatusBadRequest {
		t.Errorf("%+v", r)
	}
}

// What users copy is accepted.
func TestExamplesOfPoliciesPassTheWebhook(t *testing.T) {
	files, err := filepath.Glob("../../examples/migration/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p := &v1alpha1.MigrationPolicy{}
		if err := yaml.Unmarshal(data, p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if p.Kind != "MigrationPolicy" {
			continue
		}
		policies++
		if r := ask(t, &world{}, webhooks.PathValidateMigrationPolicies, "MigrationPolicy", p); !r.Allowed {
			t.Errorf("%s: %s", file, r.Result.Message)
		}
	}
	if policies < 2 {
		t.Errorf("%d policies among the examples", policies)
	}
}
