package provisioning_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/capacitybuffer"
	karpevents "sigs.k8s.io/karpenter/pkg/events"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/provisioning"
)

// room for so many High pods of so many percent of a core.
func room(pods, percent int) string {
	return fmt.Sprintf(`{pods: %d, criticality: High, rtSettings: {period: 100000, runtime_low: 1000, runtime_hi: %d}, resources: {cpu: 100m}}`, pods, percent*1000)
}

// keeper of headroom in a namespace of the site.
func (s *site) headroom(buffers bool) (reconcile.Reconciler, *karptest.EventRecorder) {
	told := karptest.NewEventRecorder()
	return provisioning.NewHeadroom(provisioning.HeadroomDependencies{
		Client: s.api, Recorder: told, Namespace: s.namespace, Granularity: 100, Buffers: buffers,
	}).(reconcile.Reconciler), told
}

// ask puts the annotation on a NodePool, or takes it away, and has the loop look.
func (s *site) ask(r reconcile.Reconciler, name, text string) {
	s.Helper()
	pool := &karpv1.NodePool{}
	s.must(s.api.Get(s.ctx, client.ObjectKey{Name: name}, pool))
	pool.Annotations = map[string]string{v1alpha1.AnnotationHeadroom: text}
	if text == "" {
		pool.Annotations = nil
	}
	s.must(s.api.Update(s.ctx, pool))
	_, err := r.Reconcile(s.ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	s.must(err)
}

// standIns are the names of the objects that stand for headroom, kind by kind.
func (s *site) standIns() (claims, templates, buffers []string) {
	s.Helper()
	names := func(list client.ObjectList) (out []string) {
		s.must(s.api.List(s.ctx, list, client.InNamespace(s.namespace), client.HasLabels{v1alpha1.LabelHeadroom}))
		for _, o := range items(list) {
			out = append(out, o.GetName())
		}
		slices.Sort(out)
		return out
	}
	return names(&resourcev1.ResourceClaimList{}), names(&corev1.PodTemplateList{}), names(&autoscalingv1beta1.CapacityBufferList{})
}

func TestHeadroomIsWhatTheAnnotationSays(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	r, _ := s.headroom(true)
	var before []string
	for _, step := range []struct {
		text    string
		want    int
		another bool // none of those before are among them
	}{
		{room(2, 30), 2, true}, {room(2, 30), 2, false}, {room(3, 30), 3, false}, {room(3, 40), 3, true}, {room(1, 40), 1, false},
		{"{pods: 0}", 1, false}, {"", 0, false},
	} {
		s.ask(r, "edge", step.text)
		claims, templates, buffers := s.standIns()
		if len(claims) != step.want || !slices.Equal(claims, templates) || !slices.Equal(claims, buffers) {
			t.Errorf("%q: claims %v, templates %v, buffers %v", step.text, claims, templates, buffers)
		}
		kept := slices.ContainsFunc(claims, func(n string) bool { return slices.Contains(before, n) })
		if step.want > 0 && len(before) > 0 && kept == step.another {
			t.Errorf("%q: %v, before %v", step.text, claims, before)
		}
		before = claims
	}
}

func TestHeadroomSaysWhatIsWrong(t *testing.T) {
	s := newSite(t, nodePool("edge"))
	for text, want := range map[string]string{
		"pods: 51":            "pods is 51; it must be from 1 to 50",
		"pods: 1":             "rtSettings.period: 0us is outside 100us to 10000000us",
		"{pods: 1, cores: 3}": `unknown field "cores"`,
		"[":                   "reading it",
		strings.Replace(room(1, 30), "100m", "-1", 1): "resources.cpu is -1; it must not be negative",
		room(1, 99): "runtime_hi",
	} {
		r, told := s.headroom(true)
		s.ask(r, "edge", text)
		found := false
		told.ForEachEvent(func(e karpevents.Event) {
			found = found || e.Reason == provisioning.ReasonBadHeadroom && strings.Contains(e.Message, want)
		})
		if !found {
			t.Errorf("%q: nobody said %q: %v", text, want, told.Events())
		}
	}
	r, told := s.headroom(false)
	s.ask(r, "edge", room(1, 30))
	if claims, _, _ := s.standIns(); told.Calls(provisioning.ReasonHeadroomOff) != 1 || len(claims) != 0 {
		t.Errorf("with the gate off: %d Events, claims %v", told.Calls(provisioning.ReasonHeadroomOff), claims)
	}
}

// buffered has Karpenter's loop look at every CapacityBuffer, and plan. It returns the kinds of machine of each new node,
// and how many stand-ins have room on nodes that are there.
func (p *process) buffered() (kinds [][]string, existing int) {
	p.Helper()
	p.must(p.look())
	loop := capacitybuffer.NewController(p.api, p.provisioner, p.virtual)
	list := &autoscalingv1beta1.CapacityBufferList{}
	p.must(p.api.List(p.ctx, list))
	for _, b := range list.Items {
		_, err := loop.Reconcile(p.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&b)})
		p.must(err)
	}
	results, err := p.provisioner.Schedule(p.ctx)
	p.must(err)
	for pod, err := range results.PodErrors {
		p.Errorf("pod %s: %v", pod.Name, err)
	}
	for _, c := range results.NewNodeClaims {
		var names []string
		for _, it := range c.InstanceTypeOptions {
			names = append(names, it.Name)
		}
		slices.Sort(names)
		kinds = append(kinds, names)
	}
	for _, n := range results.ExistingNodes {
		existing += len(n.Pods)
	}
	return kinds, existing
}

// Whether Karpenter's CapacityBuffers serve for real-time pods: not with claims that are still to be made from a template, as
// pods have them; with a claim of its own for each stand-in they do.
func TestHeadroomKeepsCores(t *testing.T) {
	t.Run("a buffer of pods as they are keeps no core", func(t *testing.T) {
		s := newSite(t, nodePool("edge"))
		template := &corev1.PodTemplate{}
		template.Namespace, template.Name = s.namespace, "as-they-are"
		template.Template.Spec = corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "app", Image: "none", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "rt-app"}}}}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "rt-app", ResourceClaimTemplateName: ptr.To("some")}},
		}
		buffer := &autoscalingv1beta1.CapacityBuffer{}
		buffer.Namespace, buffer.Name = s.namespace, "as-they-are"
		buffer.Spec.PodTemplateRef, buffer.Spec.Replicas = &autoscalingv1beta1.LocalObjectRef{Name: template.Name}, ptr.To(int32(1))
		s.create(template, buffer)
		kinds, _ := s.spawn().buffered()
		if len(kinds) != 1 || !slices.Contains(kinds[0], "small") {
			t.Errorf("Karpenter would open %v: has it learnt to wait for claims?", kinds)
		}
	})
	t.Run("headroom has a node opened that has the cores", func(t *testing.T) {
		s := newSite(t, nodePool("edge"))
		r, _ := s.headroom(true)
		s.ask(r, "edge", room(2, 60))
		kinds, existing := s.spawn().buffered()
		if want := [][]string{{"bigbox", "box"}}; fmt.Sprint(kinds) != fmt.Sprint(want) || existing != 0 {
			t.Errorf("new nodes %v, %d on nodes that are there", kinds, existing)
		}
	})
	t.Run("more than the cores of one box", func(t *testing.T) {
		s := newSite(t, nodePool("edge"))
		r, _ := s.headroom(true)
		s.ask(r, "edge", room(3, 60))
		kinds, _ := s.spawn().buffered()
		if want := [][]string{{"bigbox"}}; fmt.Sprint(kinds) != fmt.Sprint(want) {
			t.Errorf("new nodes %v", kinds)
		}
	})
	t.Run("until the node is there, and again when its cores are taken", func(t *testing.T) {
		s := newSite(t, nodePool("edge"))
		s.node("source", 1)
		r, _ := s.headroom(true)
		p := s.spawn()
		name := p.submit(s.request(s.run("control", "source", "High", 60)))
		p.turns(12)
		s.ends(name, "Succeeded", "box")
		s.ask(r, "edge", room(2, 60))
		if kinds, existing := p.buffered(); len(kinds) != 0 || existing != 2 {
			t.Errorf("with two free cores: new nodes %v, %d on nodes that are there", kinds, existing)
		}
		s.runOn("newcomer", s.claims()[0].Status.NodeName, 1, "High", 60)
		if kinds, existing := p.buffered(); len(kinds) != 1 || existing != 1 {
			t.Errorf("with one: new nodes %v, %d on nodes that are there", kinds, existing)
		}
	})
}
