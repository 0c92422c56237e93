package driver

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/types"

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

// FuzzClaimOfDevice: of the devices that a runtime names, those that we make are ours, each of its own claim.
func FuzzClaimOfDevice(f *testing.F) {
	for _, seed := range []string{cdiID("0a2b-1"), cdiKind + "=", cdiKind, "vendor.com/gpu=0", cdiKind + "=a=b", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if uid, ok := ClaimOfDevice(name); ok && cdiID(uid) != name {
			t.Fatalf("%q is of claim %q", name, uid)
		}
		if uid, ok := ClaimOfDevice(cdiID(types.UID(name))); !ok || uid != types.UID(name) {
			t.Fatalf("the device of claim %q is of claim %q", name, uid)
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
