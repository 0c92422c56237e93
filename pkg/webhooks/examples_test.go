package webhooks_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// What users copy is accepted without advice against it; the seeds are what they are.
func TestExamplesPassTheWebhook(t *testing.T) {
	files, err := filepath.Glob("../../examples/mckube/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	w := &world{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(data, []byte("\n---\n")) {
			m := &mcv1.McKube{}
			if err := yaml.Unmarshal(document, m); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if m.Kind != "McKube" {
				continue
			}
			warnings, errs, _ := webhooks.ValidateMcKube(t.Context(), m, w, granularity)
			if len(errs) > 0 || len(warnings) > 0 && !strings.HasPrefix(filepath.Base(file), "seed-") {
				t.Errorf("%s: %v, warnings %q", file, errs, warnings)
			}
			w.mckubes = append(w.mckubes, m)
		}
	}
}
