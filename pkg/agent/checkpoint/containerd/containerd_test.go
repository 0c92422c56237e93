package containerd

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestWhetherARuntimeRestores(t *testing.T) {
	for config, want := range map[string]string{
		`{"enableCRIU":null,"enableExperimentalRestoreViaCreate":true}`:  "",
		`{"enableCRIU":true,"enableExperimentalRestoreViaCreate":true}`:  "",
		`{"enableCRIU":false,"enableExperimentalRestoreViaCreate":true}`: "enable_criu",
		`{"enableCRIU":null,"enableExperimentalRestoreViaCreate":false}`: "enable_experimental_restore_via_create",
		`{"enableCRIU":null}`: "2.4 removed it",
		`{}`:                  "2.4 removed it",
		``:                    "reading",
	} {
		err := restores([]byte(config))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
		if err != nil && want != "reading" && !errors.Is(err, ErrNoRestore) {
			t.Errorf("%s: %v is no ErrNoRestore", config, err)
		}
	}
}

func TestAnImageIsWhatTheRuntimeRestoresFrom(t *testing.T) {
	p, err := partsOf(Image{Name: "n", Container: "app", Bytes: 7, Digest: "sha256:" + strings.Repeat("ab", 32)}, "overlayfs")
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Annotations map[string]string
		Manifests   []struct{ Digest string }
	}
	if err := json.Unmarshal(p.index.content, &index); err != nil {
		t.Fatal(err)
	}
	if index.Annotations[annotationContainer] != "app" || len(index.Manifests) != 1 || index.Manifests[0].Digest != p.manifest.Digest {
		t.Errorf("the index is %s", p.index.content)
	}
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct {
			Digest string
			Size   int64
		}
	}
	if err := json.Unmarshal(p.manifest.content, &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Config.Digest != p.config.Digest || len(manifest.Layers) != 1 || manifest.Layers[0].Digest != p.layer.Digest || manifest.Layers[0].Size != 7 {
		t.Errorf("the manifest is %s", p.manifest.content)
	}
	// The collector of containerd keeps what is referred to, and nothing else.
	if p.index.refers["containerd.io/gc.ref.content.m.0"] != p.manifest.Digest || p.manifest.refers["containerd.io/gc.ref.content.config"] != p.config.Digest ||
		p.manifest.refers["containerd.io/gc.ref.content.l.0"] != p.layer.Digest || p.config.refers["containerd.io/gc.ref.snapshot.overlayfs"] != p.layer.Digest {
		t.Errorf("references: %v, %v, %v", p.index.refers, p.manifest.refers, p.config.refers)
	}
}

func TestARestoredContainerIsToldFromOneThatBeganAnew(t *testing.T) {
	got := containersOf([]*cri.Container{
		{Id: "1", Labels: map[string]string{labelContainer: "app"}, Annotations: map[string]string{"restored": "true", "checkpointImage": "i:app"}},
		{Id: "2", Labels: map[string]string{labelContainer: "side"}, Annotations: map[string]string{"checkpointImage": "i:side"}},
	})
	if len(got) != 2 || got[0] != (Container{"app", "1", "i:app"}) || got[1] != (Container{Name: "side", ID: "2"}) {
		t.Errorf("got %+v", got)
	}
}
