package webhooks_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

func mutate(t interface{ Fatal(...any) }, p *corev1.Pod, mckubes ...*mcv1.McKube) *corev1.Pod {
	before := p.DeepCopy()
	out, err := webhooks.MutatePod(p, webhooks.Surroundings{McKubes: mckubes, Granularity: granularity})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, p) {
		t.Fatal("the pod that was given is changed")
	}
	return out
}

func TestAGovernedPodGetsClaimAnnotationsAndLabel(t *testing.T) {
	m := mckube("m", onCores("2-3"))
	got := mutate(t, pod("app"), m)
	template, err := rtdra.TemplateName(m, granularity)
	if err != nil {
		t.Fatal(err)
	}
	if want := []corev1.PodResourceClaim{{Name: "rt-app", ResourceClaimTemplateName: &template}}; !reflect.DeepEqual(got.Spec.ResourceClaims, want) {
		t.Errorf("claims of the pod: %+v", got.Spec.ResourceClaims)
	}
	if want := []corev1.ResourceClaim{{Name: "rt-app"}}; !reflect.DeepEqual(got.Spec.Containers[0].Resources.Claims, want) {
		t.Errorf("claims of the container: %+v", got.Spec.Containers[0].Resources.Claims)
	}
	if want := map[string]string{
		"mckube.io/rt-period": "10000", "mckube.io/rt-runtime-low": "1000", "mckube.io/rt-runtime-hi": "2000",
		"mckube.io/rt-current": "low", "mckube.io/rt-core": "2-3", "mckube.io/rt-pending": "true",
	}; !maps.Equal(got.Annotations, want) {
		t.Errorf("annotations %v", got.Annotations)
	}
	if _, ok := got.Labels[mcv1.LabelRT]; !ok {
		t.Error("it has no label sdv.com")
	}
	if got.Spec.Affinity != nil || got.Spec.SchedulingGates != nil {
		t.Errorf("it is restricted: %+v, %v", got.Spec.Affinity, got.Spec.SchedulingGates)
	}
}

func TestSeveralContainersAreListed(t *testing.T) {
	got := mutate(t, labelled(pod("app", "log", "idle"), "sdv.com", "cam"), mckube("a", of("app"), onCores("0,2")), mckube("b", of("log"), budget(20_000, 500, 500)))
	for key, want := range map[string]string{
		"mckube.io/rt-period": "app=10000,log=20000", "mckube.io/rt-runtime-hi": "app=2000,log=500",
		"mckube.io/rt-core": "app=0,2,log=", "mckube.io/rt-current": "app=low,log=low",
	} {
		if got.Annotations[key] != want {
			t.Errorf("%s is %q", key, got.Annotations[key])
		}
	}
	if len(got.Spec.ResourceClaims) != 2 || len(got.Spec.Containers[2].Resources.Claims) != 0 {
		t.Errorf("claims %+v", got.Spec.ResourceClaims)
	}
	if got.Labels[mcv1.LabelRT] != "cam" {
		t.Error("the user's label is overwritten")
	}
}

// The seed gave budgets to BestEffort pods only.
func TestPodsOfEveryQualityOfServiceGetTheirCore(t *testing.T) {
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	for name, r := range map[string]corev1.ResourceRequirements{
		"best effort": {}, "burstable": {Requests: one}, "guaranteed": {Requests: one, Limits: one},
	} {
		p := pod("app")
		p.Spec.Containers[0].Resources = r
		got := mutate(t, p, mckube("m"))
		resources := got.Spec.Containers[0].Resources
		if len(resources.Claims) != 1 || !reflect.DeepEqual(resources.Requests, r.Requests) || !reflect.DeepEqual(resources.Limits, r.Limits) {
			t.Errorf("%s: %+v", name, resources)
		}
	}
}

func TestSidecarsCanBeGoverned(t *testing.T) {
	p := pod("app")
	p.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	got := mutate(t, p, mckube("m", of("proxy")))
	if len(got.Spec.InitContainers[0].Resources.Claims) != 1 || len(got.Spec.Containers[0].Resources.Claims) != 0 {
		t.Errorf("%+v", got.Spec)
	}
}

func TestALabelledPodWithoutMcKubeWaitsForIt(t *testing.T) {
	for name, mckubes := range map[string][]*mcv1.McKube{"none": nil, "without settings": {mckube("m", withoutSettings)}} {
		got := mutate(t, labelled(pod("app"), "sdv.com", "x"), mckubes...)
		if !maps.Equal(got.Annotations, map[string]string{"mckube.io/rt-pending": "true"}) {
			t.Errorf("%s: %v", name, got.Annotations)
		}
		claims := got.Spec.ResourceClaims
		if len(claims) != 1 || claims[0].Name != "rt-app" || !rtdra.Awaited(*claims[0].ResourceClaimTemplateName) || got.Spec.Containers[0].Resources.Claims[0].Name != "rt-app" {
			t.Errorf("%s: %+v", name, got.Spec)
		}
	}
}

func TestPodsOfOneOwnerWaitForOneTemplate(t *testing.T) {
	waits := func(name, generateName string) string {
		p := labelled(pod("app"), "sdv.com", "x")
		p.Name, p.GenerateName = name, generateName
		return *mutate(t, p).Spec.ResourceClaims[0].ResourceClaimTemplateName
	}
	if a, b := waits("", "web-"), waits("", "web-"); a != b {
		t.Errorf("%s and %s, want one", a, b)
	}
	if a, b := waits("web-1", ""), waits("web-2", ""); a == b {
		t.Errorf("pods of different names share %s", a)
	}
}

func TestWhatCannotWaitRunsWithoutACore(t *testing.T) {
	bound := labelled(pod("app"), "sdv.com", "x")
	bound.Spec.NodeName = "n"
	for name, p := range map[string]*corev1.Pod{
		"several containers": labelled(pod("app", "log"), "sdv.com", "x"),
		"bound to a node":    bound,
		"no label":           pod("app"),
	} {
		if got := mutate(t, p); got.Spec.ResourceClaims != nil {
			t.Errorf("%s: %+v", name, got.Spec.ResourceClaims)
		}
	}
}

// The state of the pod that a new one was copied from is not that of the new one, but its settings are what the user has
// written.
func TestTheStateOfACopiedPodIsReset(t *testing.T) {
	p := mutate(t, pod("app"), mckube("m", budget(20_000, 500, 600)))
	p.Annotations["mckube.io/rt-current"], p.Annotations["mckube.io/rt-core"] = "hi", "7"
	p.Annotations["mckube.io/rt-pending"], p.Annotations["mckube.io/rt-configured"] = "false", "true"
	p.Annotations["mckube.io/preempting"] = "{}"
	m := mckube("m")
	got := mutate(t, p, m)
	for key, want := range map[string]string{
		"mckube.io/rt-current": "low", "mckube.io/rt-core": "", "mckube.io/rt-pending": "true",
		"mckube.io/rt-configured": "", "mckube.io/preempting": "", "mckube.io/rt-period": "20000",
	} {
		if got.Annotations[key] != want {
			t.Errorf("%s is %q", key, got.Annotations[key])
		}
	}
	if template, _ := rtdra.TemplateName(m, granularity); len(got.Spec.ResourceClaims) != 1 || *got.Spec.ResourceClaims[0].ResourceClaimTemplateName != template {
		t.Errorf("claims %+v", got.Spec.ResourceClaims)
	}
}

func TestTheNodeOfAMcKubeIsRequired(t *testing.T) {
	hosts := func(p *corev1.Pod) (all [][]string) {
		if p.Spec.Affinity == nil {
			return nil
		}
		for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			var keys []string
			for _, r := range term.MatchExpressions {
				keys = append(keys, r.Key+"="+strings.Join(r.Values, "|"))
			}
			all = append(all, keys)
		}
		return all
	}
	zoned := pod("app")
	zone := func(z string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{z}}}}
	}
	zoned.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{zone("a"), zone("b")},
	}}}
	filled := mckube("m", onNode("n1"))
	filled.Annotations = map[string]string{mcv1.AnnotationFilledNode: "n1"}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		mckube *mcv1.McKube
		want   [][]string
	}{
		"asked for":     {pod("app"), mckube("m", onNode("n1")), [][]string{{"kubernetes.io/hostname=n1"}}},
		"in every term": {zoned, mckube("m", onNode("n1")), [][]string{{"zone=a", "kubernetes.io/hostname=n1"}, {"zone=b", "kubernetes.io/hostname=n1"}}},
		"filled in":     {pod("app"), filled, nil},
		"not asked for": {pod("app"), mckube("m"), nil},
	} {
		if got := hosts(mutate(t, tc.pod, tc.mckube)); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The scheduler would never allocate the claim of a pod that it does not see.
func TestAPodThatIsOnItsNodeAlreadyGetsNoClaim(t *testing.T) {
	p := pod("app")
	p.Spec.NodeName = "n1"
	got := mutate(t, p, mckube("m", onNode("n1")))
	if got.Spec.ResourceClaims != nil || got.Spec.Affinity != nil || got.Annotations["mckube.io/rt-period"] != "10000" || got.Annotations["mckube.io/rt-pending"] != "true" {
		t.Errorf("%+v", got)
	}
	if _, err := webhooks.MutatePod(p, webhooks.Surroundings{McKubes: []*mcv1.McKube{mckube("m", onNode("n2"))}}); err == nil || !strings.Contains(err.Error(), `spec.nodeName is "n1"`) {
		t.Errorf("on another node: %v", err)
	}
}

func TestMutationSaysWhatIsWrong(t *testing.T) {
	own := pod("app")
	own.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "rt-app", ResourceClaimName: ptr.To("mine")}}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		mckubes []*mcv1.McKube
		want    []string
	}{
		"no such container":     {pod("app"), []*mcv1.McKube{mckube("m", of("db"))}, []string{`spec.container of McKube m is "db"`, "it has app"}},
		"which container":       {pod("app", "log"), []*mcv1.McKube{mckube("m")}, []string{"several containers", "one of app, log"}},
		"two for one container": {pod("app"), []*mcv1.McKube{mckube("a"), mckube("b", of("app"))}, []string{"container app", "McKubes a and b"}},
		"two nodes":             {pod("app", "log"), []*mcv1.McKube{mckube("a", of("app"), onNode("n1")), mckube("b", of("log"), onNode("n2"))}, []string{`"n1"`, `"n2"`}},
		"the claim's name":      {own, []*mcv1.McKube{mckube("m")}, []string{"spec.resourceClaims[0].name", "rt-app"}},
		"all of it at once":     {pod("app", "log"), []*mcv1.McKube{mckube("a", of("x")), mckube("b")}, []string{"McKube a", "McKube b"}},
	} {
		_, err := webhooks.MutatePod(tc.pod, webhooks.Surroundings{McKubes: tc.mckubes, Granularity: granularity})
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", name, err, want)
			}
		}
	}
}

// The API server may send a pod twice, and others may have changed it between.
func TestMutatingTwiceIsMutatingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pod(rapid.SampledFrom([][]string{{"app"}, {"app", "log"}}).Draw(t, "containers")...)
		var mckubes []*mcv1.McKube
		for i, c := range p.Spec.Containers {
			if rapid.Bool().Draw(t, "governed") {
				low := rapid.Int64Range(granularity, 9_000).Draw(t, "low")
				mckubes = append(mckubes, mckube(string(rune('a'+i)), of(c.Name), budget(10_000, low, rapid.Int64Range(low, 9_500).Draw(t, "hi")),
					onNode(rapid.SampledFrom([]string{"", "n"}).Draw(t, "node")), critical("Middle")))
			}
		}
		in := webhooks.Surroundings{McKubes: mckubes, Granularity: granularity}
		if rapid.Bool().Draw(t, "preempting") {
			in.Preempting = ptr.To(rapid.SampledFrom([]rt.Criticality{rt.Low, rt.Middle, rt.High}).Draw(t, "for"))
		}
		once, err := webhooks.MutatePod(p, in)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := webhooks.MutatePod(once, in)
		if err != nil || !reflect.DeepEqual(once, twice) {
			t.Fatalf("%v\n%+v\n%+v", err, once, twice)
		}
		if gated := len(once.Spec.SchedulingGates) == 1; gated != (in.Preempting != nil && *in.Preempting == rt.High && len(mckubes) > 0) {
			t.Fatalf("gates %v", once.Spec.SchedulingGates)
		}
		if warnings, err := webhooks.ValidatePod(once, mckubes); err != nil || len(warnings) > 0 {
			t.Fatalf("what was made is refused: %v %v", warnings, err)
		}
	})
}
