package charts_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/chart"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// The charts, from this package's folder.
const (
	mainChart = "../../charts/mainspring"
	crdsChart = "../../charts/mainspring-crds"
	namespace = "mainspring-system"
)

// buildTimeout bounds what builds a program that is not in the cache yet.
const buildTimeout = 15 * time.Minute

var ensureHelm = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	paths, err := toolchain.Ensure(ctx, os.Stderr, toolchain.Helm)
	return paths[toolchain.Helm], err
})

func helm(t *testing.T) chart.Helm {
	t.Helper()
	program, err := ensureHelm()
	if err != nil {
		t.Fatal(err)
	}
	return chart.Helm{Program: program}
}

func release(dir string, values map[string]any) chart.Release {
	return chart.Release{Name: filepath.Base(dir), Namespace: namespace, Chart: dir, Values: values}
}

// template renders the chart mainspring.
func template(t *testing.T, values map[string]any) chart.Manifests {
	t.Helper()
	manifests, err := helm(t).Template(t.Context(), release(mainChart, values))
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

func decode[T any](t *testing.T, m chart.Manifests, kind, name string) *T {
	t.Helper()
	object, err := chart.Decode[T](m, kind, name)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// values nests value under the keys.
func values(value any, keys ...string) map[string]any {
	for i := len(keys) - 1; i > 0; i-- {
		value = map[string]any{keys[i]: value}
	}
	return map[string]any{keys[0]: value}
}

type object = map[string]any

type list = []any
