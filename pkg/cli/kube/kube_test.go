package kube_test

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/cli/kube"
)

func TestParse(t *testing.T) {
	t.Parallel()
	objects, err := kube.Parse("in.yaml", []byte("# a comment\n---\nkind: A\nmetadata: {name: a}\n---\n---\nkind: B\nmetadata: {name: b}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 2 || objects[1].GetName() != "b" {
		t.Errorf("got %v", objects)
	}
}

func TestParseFaults(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"kind: [": "in.yaml: document 1: ",
		"kind: A": "in.yaml: document 1: want an object with kind and metadata.name",
	} {
		if _, err := kube.Parse("in.yaml", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", in, err)
		}
	}
}
