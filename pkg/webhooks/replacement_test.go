package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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

// A pod waits for the controller only while one of its owner's is being moved, and has no pod in its place.
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

// The author of a pod writes its owner reference. What is no UID, and what would be too much, is left out of the expression that every API server evaluates.
func TestOwnersThatTheEntryNames(t *testing.T) {
	secret := emptySecret(nil)
	var objects []client.Object
	add := func(name, namespace string, uid types.UID, change func(*v1alpha1.PodMigration)) {
		o := &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		o.Status = v1alpha1.PodMigrationStatus{Phase: v1alpha1.MigrationReserving, Strategy: v1alpha1.StrategyRestart, Owner: &v1alpha1.MigrationOwner{Kind: "Job", UID: uid}}
		if change != nil {
			change(o)
		}
		objects = append(objects, o)
	}
	add("one", "a", "uid-1", nil)
	add("again", "a", "uid-1", nil)
	add("hostile", "a", `x"] || true || "" in ["`, nil)
	add("long", "a", types.UID(strings.Repeat("u", 10_000)), nil)
	add("spared", "kube-system", "uid-2", nil)
	add("over", "a", "uid-3", func(o *v1alpha1.PodMigration) { o.Status.Phase = v1alpha1.MigrationFailed })
	add("beside", "a", "uid-4", func(o *v1alpha1.PodMigration) { o.Status.Strategy = v1alpha1.StrategySurge })
	add("waiting", "a", "uid-6", func(o *v1alpha1.PodMigration) { o.Status.Phase = v1alpha1.MigrationPending })
	add("bare", "a", "uid-5", func(o *v1alpha1.PodMigration) { o.Status.Owner = nil })
	generated := func(objects ...client.Object) []admissionv1.MutatingWebhook {
		t.Helper()
		c, _ := keeper(t, true, nil, append(objects, secret.DeepCopy())...)
		if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		config := &admissionv1.MutatingWebhookConfiguration{}
		if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: "mainspring-governed"}, config); err != nil {
			t.Fatal(err)
		}
		return config.Webhooks
	}
	list := generated(objects...)
	if len(list) != 1 {
		t.Fatalf("entries %+v", list)
	}
	e := list[0]
	if want := `exists(o, o.uid in ["uid-1"])`; !strings.HasSuffix(e.MatchConditions[0].Expression, want) || *e.FailurePolicy != admissionv1.Ignore {
		t.Errorf("%s with failure policy %s; want %s", e.MatchConditions[0].Expression, *e.FailurePolicy, want)
	}
	if got := e.NamespaceSelector.MatchExpressions[0].Values; !slices.Equal(got, []string{"a"}) {
		t.Errorf("namespaces %v", got)
	}
	objects = nil
	for i := range 300 {
		add(fmt.Sprintf("m%d", i), "a", types.UID(fmt.Sprintf("uid-%03d", i)), nil)
	}
	if got := strings.Count(generated(objects...)[0].MatchConditions[0].Expression, "uid-"); got != 100 {
		t.Errorf("%d owners, want 100", got)
	}
	objects = nil
	for i := range 150 { // of one Deployment
		add(fmt.Sprintf("m%d", i), "a", "uid-one", nil)
	}
	add("z", "z", "uid-last", nil)
	if got := generated(objects...)[0].MatchConditions[0].Expression; !strings.Contains(got, `["uid-last", "uid-one"]`) {
		t.Errorf("of an owner with many migrations and another one: %s", got)
	}
	if list := generated(); len(list) != 0 {
		t.Errorf("entries without migrations: %+v", list)
	}
}
