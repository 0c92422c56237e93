package placement_test

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/placement"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// land is two nodes, of 4 CPUs each, in two zones, and what runs there.
type land struct {
	*testing.T
	ctx     context.Context
	api     client.Client
	cluster *state.Cluster
	*placement.Simulator
}

func newLand(t *testing.T) *land {
	t.Helper()
	l := &land{T: t, ctx: options.ToContext(t.Context(), karptest.Options()), api: apiserver.Client(t, apiserver.Scheme(t))}
	recorder := karptest.NewEventRecorder()
	l.cluster = state.NewCluster(clock.RealClock{}, l.api, fake.NewCloudProvider())
	l.Simulator = &placement.Simulator{Client: l.api, Cluster: l.cluster, Recorder: recorder, Clock: clock.RealClock{}}
	t.Cleanup(func() {
		apiserver.Empty(t, l.api, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{}, &corev1.NodeList{})
	})
	for _, name := range []string{"a", "b"} {
		n := statetest.Node(name, "")
		n.Labels = map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: "zone-" + name}
		status := n.Status
		status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("20")}
		status.Capacity = status.Allocatable
		l.must(l.api.Create(l.ctx, n))
		n.Status = status
		l.must(l.api.Status().Update(l.ctx, n))
		n.Spec.Taints = nil // as the node controller of a cluster does
		l.must(l.api.Update(l.ctx, n))
		l.must(l.cluster.UpdateNode(l.ctx, n))
	}
	l.cluster.SetSynced(true)
	return l
}

func (l *land) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// pod runs on a node, and requests so much CPU.
func (l *land) pod(name, node, cpu string, edits ...func(*corev1.Pod)) *corev1.Pod {
	l.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "rt"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "app", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	l.must(l.api.Create(l.ctx, p))
	p.Status.Phase = corev1.PodRunning
	l.must(l.api.Status().Update(l.ctx, p))
	l.must(l.cluster.UpdatePod(l.ctx, p))
	return p
}

// expect asks whether pods would be placed on node b. said is part of why not; empty when they would.
func (l *land) expect(said string, pods ...*corev1.Pod) {
	l.Helper()
	why, err := l.Refusal(l.ctx, "b", pods)
	l.must(err)
	if (said == "") != (why == "") || !strings.Contains(why, said) {
		l.Errorf("refused with %q; want %q", why, said)
	}
}

func TestRequestsCountTogether(t *testing.T) {
	l := newLand(t)
	first, second := l.pod("first", "a", "1500m"), l.pod("second", "a", "1500m")
	l.expect("", first, second)
	l.pod("there", "b", "2")
	l.expect("", first)
	l.expect("pod default/", first, second)
}

func TestWhereThePodIsDoesNotCount(t *testing.T) {
	l := newLand(t)
	apart := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rt"}}, TopologyKey: corev1.LabelHostname,
		}}}}
	}
	moving := l.pod("moving", "a", "1", apart)
	l.expect("", moving)
	l.pod("there", "b", "1", apart)
	l.expect("pod default/moving: its requests", moving)
}

func TestSpread(t *testing.T) {
	l := newLand(t)
	spread := func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rt"}},
		}}
	}
	moving := l.pod("moving", "a", "1", spread)
	l.expect("", moving)
	l.pod("there", "b", "1", spread)
	l.expect("pod default/moving: its requests", moving)
}

func TestHostPortsTaintsAndSelectors(t *testing.T) {
	l := newLand(t)
	port := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	listening := l.pod("listening", "a", "1", port)
	l.expect("", listening)
	l.pod("there", "b", "1", port)
	l.expect("pod default/listening: its requests", listening)
	l.expect("pod default/bound-to-a", l.pod("bound-to-a", "a", "1", func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "zone-a"}
	}))
	free := l.pod("free", "a", "1")
	l.expect("", free)
	n := &corev1.Node{}
	l.must(l.api.Get(l.ctx, client.ObjectKey{Name: "b"}, n))
	n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}
	l.must(l.api.Update(l.ctx, n))
	l.must(l.cluster.UpdateNode(l.ctx, n))
	l.expect("pod default/free: its requests", free)
}

func TestVolumes(t *testing.T) {
	l := newLand(t)
	for node, wanted := range map[string]string{"a": "volume local-a of pod default/with-local-a cannot be had there", "b": ""} {
		name := "local-" + node
		l.must(l.api.Create(l.ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}}, StorageClassName: "local",
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		}}))
		l.must(l.api.Create(l.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("local"), VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}))
		l.expect(wanted, l.pod("with-"+name, "a", "100m", claims(name)))
	}
	l.expect("PersistentVolumeClaim nowhere does not exist", l.pod("with-none", "a", "100m", claims("nowhere")))
}

func claims(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	}
}

// What has a claim for cores is placed as if it had none: Karpenter would have it stay where the claim is.
func TestClaimsAreLeftOut(t *testing.T) {
	l := newLand(t)
	l.expect("", l.pod("rt", "a", "1", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "rt-app", ResourceClaimName: ptr.To("nowhere")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "rt-app"}}
	}))
}

func TestANodeThatGoesTakesNobody(t *testing.T) {
	l := newLand(t)
	p := l.pod("moving", "a", "1")
	l.cluster.DeleteNode("b")
	l.expect("it is gone, or about to go", p)
}
