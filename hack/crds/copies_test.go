package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	karpenter "sigs.k8s.io/karpenter/pkg/apis"
)

const ours = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.mckube.io
spec:
  group: mckube.io
  names: {kind: Thing, plural: things}
  scope: Cluster
`

func ownFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, "any.yaml", ours)
	return dir
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWrittenCopiesPassTheCheck(t *testing.T) {
	own, chart := ownFolder(t), filepath.Join(t.TempDir(), "files")
	if err := run(own, chart, false); err != nil {
		t.Fatal(err)
	}
	if err := run(own, chart, true); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(filepath.Join(chart, "mckube.io_things.yaml"))
	if err != nil || string(data) != ours {
		t.Errorf("our definition was copied as %q, %v", data, err)
	}
}

func TestCheckNamesEachDifference(t *testing.T) {
	own, chart := ownFolder(t), t.TempDir()
	if err := run(own, chart, false); err != nil {
		t.Fatal(err)
	}
	put(t, chart, "mckube.io_things.yaml", ours+"# edited by hand\n")
	put(t, chart, "old.example.com_gone.yaml", ours)
	if err := os.Remove(filepath.Join(chart, "karpenter.sh_nodepools.yaml")); err != nil {
		t.Fatal(err)
	}

	err := run(own, chart, true)
	if err == nil {
		t.Fatal("the check passed")
	}
	for _, want := range []string{
		"karpenter.sh_nodepools.yaml is missing",
		"mckube.io_things.yaml differs from its source",
		"old.example.com_gone.yaml has no source",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestWriteRemovesWhatHasNoSource(t *testing.T) {
	own, chart := ownFolder(t), t.TempDir()
	put(t, chart, "old.example.com_gone.yaml", ours)
	if err := run(own, chart, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(chart, "old.example.com_gone.yaml")); !os.IsNotExist(err) {
		t.Errorf("the copy without source is still there: %v", err)
	}
}

func TestDefinitionsAreRefused(t *testing.T) {
	for name, content := range map[string]string{
		"not YAML":      "\t{",
		"unknown field": ours + "extra: true\n",
		"no group":      strings.Replace(ours, "group: mckube.io", "group: \"\"", 1),
		"twice":         strings.NewReplacer("mckube.io", "karpenter.sh", "things", "nodepools").Replace(ours),
	} {
		dir := t.TempDir()
		put(t, dir, "bad.yaml", content)
		if _, err := definitions(dir); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The commit is what users install: it must be what the module in go.mod carries.
func TestCommittedCopiesAreCurrent(t *testing.T) {
	wanted, err := definitions("../../pkg/apis/crds")
	if err != nil {
		t.Fatal(err)
	}
	differences, err := compare("../../charts/mainspring-crds/files", wanted)
	if err != nil {
		t.Fatal(err)
	}
	if len(differences) > 0 {
		t.Errorf("run `go run ./hack/crds`: %v", slices.Compact(differences))
	}
}

// What upstream has moved elsewhere must be found by whoever updates it.
func TestTheReasonHasOnePlace(t *testing.T) {
	if _, err := withReason([]byte("kind: CustomResourceDefinition\n")); err == nil {
		t.Error("a definition without budgets was accepted")
	}
	once, err := withReason(karpenter.NodePoolCRD)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := withReason(append(once, once...)); err == nil {
		t.Error("a definition with two places was accepted")
	}
}
