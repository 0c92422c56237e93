package containerd

import (
	"encoding/json"
	"strings"
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

// FuzzIndex: an index is a checkpoint's where it says of which container, and those that Import makes say so.
func FuzzIndex(f *testing.F) {
	for _, seed := range []string{
		`{"schemaVersion":2,"annotations":{"` + annotationContainer + `":"app"}}`, `{"annotations":{"` + annotationContainer + `":""}}`,
		`{"annotations":{"` + annotationContainer + `":7}}`, `{"annotations":null}`, `{"manifests":[]}`, "null", "[]", `{"annotations":`, "",
	} {
		f.Add([]byte(seed), "app")
	}
	f.Fuzz(func(t *testing.T, text []byte, container string) {
		var index map[string]any
		if ofCheckpoint(text) && (json.Unmarshal(text, &index) != nil || len(index) == 0) {
			t.Fatalf("%q is the index of a checkpoint", text)
		}
		made, err := partsOf(Image{Container: container, Digest: "sha256:" + strings.Repeat("ab", 32)}, "overlayfs")
		if err != nil {
			t.Fatal(err)
		}
		if ofCheckpoint(made.index.content) != (container != "") {
			t.Fatalf("what is made of container %q is %s", container, made.index.content)
		}
	})
}
