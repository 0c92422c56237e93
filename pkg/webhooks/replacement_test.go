package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// records are the PodMigrations of a namespace; nil: they cannot be read.
type records []v1alpha1.PodMigration

func (r records) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("nobody asks for one")
}

func (r records) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if r == nil {
		return errors.New("the cache is not there")
	}
	into.(*v1alpha1.PodMigrationList).Items = r
	return nil
}

// A pod waits for the controller only while one of its owner's is being moved, and has nobody in its place.
func TestThePlaceOfAMigratedPodIsGated(t *testing.T) {
	moving := func(change func(*v1alpha1.PodMigration)) records {
		o := v1alpha1.PodMigration{Status: v1alpha1.PodMigrationStatus{
			Phase: v1alpha1.MigrationCuttingOver, Strategy: v1alpha1.StrategyRestart, Owner: &v1alpha1.MigrationOwner{Kind: "ReplicaSet", UID: "set"},
			Target: &v1alpha1.MigrationEnd{Node: "b"},
		}}
		change(&o)
		return records{o}
	}
	for name, c := range map[string]struct {
		owner string
		list  records
		gated bool
	}{
		"being moved":      {"set", moving(func(*v1alpha1.PodMigration) {}), true},
		"evicted":          {"set", moving(func(o *v1alpha1.PodMigration) { o.Status.Phase = v1alpha1.MigrationRestoring }), true},
		"of another":       {"other", moving(func(*v1alpha1.PodMigration) {}), false},
		"of nobody":        {"", moving(func(*v1alpha1.PodMigration) {}), false},
		"not yet":          {"set", moving(func(o *v1alpha1.PodMigration) { o.Status.Phase = v1alpha1.MigrationReserving }), false},
		"over":             {"set", moving(func(o *v1alpha1.PodMigration) { o.Status.Phase = v1alpha1.MigrationSucceeded }), false},
		"by a copy":        {"set", moving(func(o *v1alpha1.PodMigration) { o.Status.Strategy = v1alpha1.StrategySurge }), false},
		"has its place":    {"set", moving(func(o *v1alpha1.PodMigration) { o.Status.Target.PodUID = "x" }), false},
		"nothing moves":    {"set", records{}, false},
		"nothing is known": {"set", nil, false},
	} {
		p := pod("app")
		p.Namespace = ""
		if c.owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: "set", UID: types.UID(c.owner), Controller: ptr.To(true)}}
		}
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{mckubes: []*mcv1.McKube{mckube("m")}, migrations: c.list}
		got := patched(t, raw, send(t, w, webhooks.PathMutatePods, "Pod", raw))
		if gated := slices.Contains(got.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.GateMigration}); gated != c.gated {
			t.Errorf("%s: gated is %t", name, gated)
		}
	}
}
