package disruption_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// syncClaims lets Karpenter and the store know which claims hold which cores.
func (w *world) syncClaims() {
	w.Helper()
	claims := &resourcev1.ResourceClaimList{}
	w.must(w.client.List(w.ctx, claims))
	for i := range claims.Items {
		w.must(w.store.Update(&claims.Items[i]))
		_, err := w.devices.Reconcile(w.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
		w.must(err)
	}
}

// countsClaims has Karpenter's simulation count the bandwidth of claims, as the controller does.
func (w *world) countsClaims() {
	w.Helper()
	w.ctx = options.ToContext(w.ctx, karptest.Options(karptest.OptionsFields{IgnoreDRARequests: ptr.To(false)}))
	class, err := charts.DeviceClass()
	w.must(err)
	w.must(w.client.Create(w.ctx, class))
}

// publishes has a node offer one core whose budgets a backend enforces.
func (w *world) publishes(name, backend string) {
	w.Helper()
	cores := statetest.Cores(1)
	slice := statetest.SliceOf(w.live(name), backend, cores...)
	slice.UID, slice.CreationTimestamp = "", metav1.Time{}
	w.must(w.client.Create(w.ctx, slice))
	w.must(w.store.Update(slice))
}

// claimant is a pod on the only core of a node, whose container holds a claim for so many percent of it.
func (w *world) claimant(name, node string, percent int64) {
	w.Helper()
	mckube := statetest.McKube("default", name, name, "High", percent, percent)
	w.must(w.store.Update(mckube))
	spec, err := rtdra.ClaimSpec(mckube, rt.MinPeriod)
	w.must(err)

	pod := statetest.Pod("default", name, "", "app")
	pod.CreationTimestamp = metav1.Time{}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web-1", Controller: ptr.To(true)}}
	pod.Spec.NodeName = node
	pod.Spec.Containers[0].Image = "app"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: rtdra.ClaimName("app"), ResourceClaimName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: rtdra.ClaimName("app")}}
	pod.Status.Phase = corev1.PodRunning
	w.create(pod)

	server, err := rtdra.ServerOf(mckube, pod.UID, "app")
	w.must(err)
	given := statetest.Claim(pod, name, "app", node, 0, server.Charge(rt.MinPeriod))
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec, Status: given.Status}
	claim.Status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID(uuid.NewString()))
	w.create(claim)
	w.sync()
}

// Two containers of 30 % hold claims on a core each. The bandwidth of one core, 90 %, is enough for both, and Karpenter's
// simulation, which counts it, closes a node. With fixed priorities a core does not admit both: one may run at the end of
// its period and again at once, before the other.
func TestConsolidationThatBandwidthsAllowAndAdmissionRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		backend string
		percent int64
		closes  int
	}{
		"fixed priorities, two of 30 %":        {"rtgroup", 30, 0},
		"fixed priorities, two of 20 %":        {"rtgroup", 20, 1},
		"earliest deadline first, two of 30 %": {"simulated", 30, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := consolidating(t)
			w.countsClaims()
			for _, node := range []string{"a", "b"} {
				w.node(node, "edge")
				w.publishes(node, tc.backend)
				w.claimant("pod-"+node, node, tc.percent)
			}
			w.pass()
			if got := w.disrupted(); len(got) != tc.closes {
				t.Errorf("consolidation closes %v, want %d: %s", got, tc.closes, strings.Join(w.messages(), "\n"))
			}
			if tc.closes > 0 {
				return
			}
			if !w.said("NoCoreElsewhere: ") {
				t.Errorf("the node is not told why: %q", w.messages())
			}
			w.cluster.MarkUnconsolidated()
			w.passOf(w.stock())
			if got := w.disrupted(); len(got) == 0 {
				t.Errorf("Karpenter's own loop closes none of them either, so nothing was refused: %q", w.messages())
			}
		})
	}
}
