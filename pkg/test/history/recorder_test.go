package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	_ "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/charts"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/localplane"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// startPlane returns an API server that serves what a Recorder watches.
func startPlane(ctx context.Context, t *testing.T) (*localplane.Plane, client.WithWatch) {
	t.Helper()
	options := localplane.Options{}
	var err error
	if options.Bin, err = toolchain.Ensure(ctx, t.Output(), options.Tools()...); err != nil {
		t.Fatal(err)
	}
	plane, err := localplane.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	definitions, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.ApplyCRDs(ctx, definitions...); err != nil {
		t.Fatal(err)
	}
	for _, add := range []func(*runtime.Scheme) error{mckubev1alpha1.AddToScheme, mcoperatorv1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := plane.RESTConfig()
	config.QPS = -1 // hundreds of objects
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return plane, c
}

// touch writes n versions of a Node and then deletes it.
func touch(ctx context.Context, t *testing.T, c client.Client, name string, n int) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	for i := 2; i <= n; i++ {
		before := node.DeepCopy()
		node.Annotations = map[string]string{"version": fmt.Sprint(i)}
		if err := c.Patch(ctx, node, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(ctx, node); err != nil {
		t.Fatal(err)
	}
}

func typesOf(h History, name string) []watch.EventType {
	var types []watch.EventType
	for _, v := range h.Versions() {
		if v.Object.GetName() == name {
			types = append(types, v.Type)
		}
	}
	return types
}

func TestRecorder(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Minute) // tools may have to be built
	defer cancel()
	plane, c := startPlane(ctx, t)
	recorder, err := Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer recorder.Stop()

	touch(ctx, t, c, "brief", 3)
	if err := recorder.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	want := []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted}
	if got := typesOf(recorder.History(), "brief"); !slices.Equal(got, want) {
		t.Errorf("versions of a Node that was made, changed twice and deleted: %v, want %v", got, want)
	}
	if gaps := recorder.Gaps(); len(gaps) > 0 {
		t.Errorf("gaps without a loss: %v", gaps)
	}
	testPages(ctx, t, c)

	if err := plane.StopAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if err := plane.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	touch(ctx, t, c, "later", 1)
	if err := recorder.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	seen := len(typesOf(recorder.History(), "later")) == 2
	if !seen && len(recorder.Gaps()) == 0 {
		t.Error("versions after a restart of the API server are neither on record nor reported as missing")
	}
}

// testPages has more objects on record than one answer has.
func testPages(ctx context.Context, t *testing.T, c client.WithWatch) {
	t.Helper()
	want := map[string]bool{}
	for i := range pageSize + 2 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("page-%d", i)}}
		if err := c.Create(ctx, node); err != nil {
			t.Fatal(err)
		}
		want[node.Name] = true
	}
	most := 0
	recorder, err := Start(ctx, interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := c.List(ctx, list, options...)
			most = max(most, meta.LenList(list))
			return err
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer recorder.Stop()
	got := map[string]bool{}
	for _, node := range Live[*corev1.Node](recorder) {
		got[node.Name] = true
	}
	if !maps.Equal(got, want) || most != pageSize {
		t.Errorf("%d nodes of %d are on record; the longest answer had %d, want %d", len(got), len(want), most, pageSize)
	}
	if err := recorder.Sync(ctx); err != nil {
		t.Error(err)
	}
}
