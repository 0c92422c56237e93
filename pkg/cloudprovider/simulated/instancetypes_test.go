package simulated_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	kwokoptions "sigs.k8s.io/karpenter/kwok/options"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

func TestInstanceTypesFileIsRefused(t *testing.T) {
	const offering = `"offerings": [{"Price": 1, "Available": true, "Requirements": []}]`
	const resources = `"resources": {"cpu": "1", "memory": "1Gi"}`
	for name, tc := range map[string]struct{ content, want string }{
		"not JSON":      {"{", "parse"},
		"an empty list": {"[]", "must hold at least one instance type"},
		"without name":  {`[{` + offering + `,` + resources + `}]`, "[0].name is empty"},
		"the same name": {`[{"name":"a",` + offering + `,` + resources + `},{"name":"a",` + offering + `,` + resources + `}]`, `[1].name is "a"`},
		"no offerings":  {`[{"name":"a",` + resources + `}]`, `[0].offerings of "a" is empty`},
		"no cpu":        {`[{"name":"a",` + offering + `,"resources":{"memory":"1Gi"}}]`, `[0].resources of "a" must hold cpu and memory`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "types.json")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx := kwokoptions.ToContext(t.Context(), &kwokoptions.Options{InstanceTypesFilePath: path})
			_, err := simulated.InstanceTypes(ctx, nil)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
