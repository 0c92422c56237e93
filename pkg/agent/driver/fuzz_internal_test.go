package driver

import (
	"os"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// FuzzCoreNumber: a device is one core, by one name.
func FuzzCoreNumber(f *testing.F) {
	for _, seed := range []string{"core-0", "core-007", "core--1", "core-99999999999999999999", "core-1x", "", "core-+1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, device string) {
		if core, ok := coreNumber(device); ok && (core < 0 || rtdra.DeviceName(core) != device) {
			t.Fatalf("%q is core %d", device, core)
		}
	})
}

// FuzzClaimOf: of a specification that is no more what was written, no claim is named by halves.
func FuzzClaimOf(f *testing.F) {
	for _, seed := range []string{`{"devices":[{"containerEdits":{"env":["` + EnvClaim + `=ns/a"]}}]}`, `{"devices":[{}]}`, `{"devices":[{"containerEdits":{"env":["` + EnvClaim + `=/"]}}]}`, "null", ""} {
		f.Add([]byte(seed))
	}
	folder := cdiFolder{dir: f.TempDir()}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(folder.path("u"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if name, ok := folder.claimOf("u"); ok && (name.Namespace == "" || name.Name == "") {
			t.Fatalf("%q: %v", data, name)
		}
	})
}
