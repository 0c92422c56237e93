package containerd

import (
	"encoding/json"
	"testing"
)

// FuzzRestores: a runtime restores only where its configuration says so.
func FuzzRestores(f *testing.F) {
	for _, seed := range []string{`{"enableCRIU":true,"enableExperimentalRestoreViaCreate":true}`, `{"enableCRIU":false}`, "{}", "null", "", "[]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		if restores(config) != nil {
			return
		}
		var read map[string]any
		if err := json.Unmarshal(config, &read); err != nil || len(read) == 0 {
			t.Fatalf("%q: %v", config, err)
		}
	})
}
