package opened_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/opened"
)

// machine is what an API server has of a machine that was opened for an action.
func machine(t *testing.T, objects ...client.Object) (api client.WithWatch, claim *karpv1.NodeClaim) {
	t.Helper()
	marks := map[string]string{v1alpha1.AnnotationAction: "opennode-1"}
	claim = &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "edge-1", Annotations: marks}}
	claim.Status.NodeName = "edge"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Annotations: marks}}
	api = crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(append(objects, claim, node)...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	return api, claim
}

// behind is a client whose cache shows no pod yet.
func behind(api client.WithWatch) client.Client {
	return interceptor.NewClient(api, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
}

func pod(owner string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "edge"}}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "web", UID: "web"}}
	return p
}

// What a cache does not show yet keeps a node all the same: that a pod has come to it, or that its machine has joined.
func TestANodeToWhichAPodHasJustComeStays(t *testing.T) {
	for name, stale := range map[string]func(*karpv1.NodeClaim){
		"the pod is not shown":        func(*karpv1.NodeClaim) {},
		"the machine has no node yet": func(c *karpv1.NodeClaim) { c.Status.NodeName = "" },
	} {
		t.Run(name, func(t *testing.T) {
			api, claim := machine(t, pod("ReplicaSet"))
			shown := claim.DeepCopy()
			stale(shown)
			if left, err := opened.Discard(t.Context(), behind(api), api, shown); err != nil || !left {
				t.Fatalf("left: %t, %v", left, err)
			}
			for _, o := range []client.Object{claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}} {
				if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetAnnotations()[v1alpha1.AnnotationAction] != "" {
					t.Errorf("%T: %v, annotations %v", o, err, o.GetAnnotations())
				}
			}
		})
	}
}

// A machine is given up where nobody is who would have to go elsewhere.
func TestANodeWithoutPodsGoes(t *testing.T) {
	api, claim := machine(t, pod("DaemonSet"))
	if left, err := opened.Discard(t.Context(), api, api, claim); err != nil || left {
		t.Fatalf("left: %t, %v", left, err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the NodeClaim is there: %v", err)
	}
	if left, err := opened.Discard(t.Context(), api, api, claim); err != nil || left {
		t.Errorf("once it is gone: left: %t, %v", left, err)
	}
}

// A later one of the name is another's.
func TestALaterNodeClaimOfTheNameStays(t *testing.T) {
	api, claim := machine(t)
	earlier := claim.DeepCopy()
	earlier.UID = "edge-0"
	if left, err := opened.Discard(t.Context(), api, api, earlier); err != nil || left {
		t.Fatalf("left: %t, %v", left, err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Errorf("it is gone, too: %v", err)
	}
}
