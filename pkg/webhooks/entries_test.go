package webhooks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/charts"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

// entryTemplate is the webhook of labelled pods that the chart installs.
func entryTemplate(t interface{ Fatal(...any) }) admissionv1.MutatingWebhook {
	all, err := charts.Webhooks("https://localhost:9443")
	if err != nil {
		t.Fatal(err)
	}
	return all.Mutating[0].Webhooks[0]
}

// sent tells whether an API server would send the pod to one of the webhooks, and to how many.
func sent(t interface{ Fatal(...any) }, entries []admissionv1.MutatingWebhook, p *corev1.Pod) int {
	n := 0
	for _, e := range entries {
		space, err := metav1.LabelSelectorAsSelector(e.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		object, err := metav1.LabelSelectorAsSelector(e.ObjectSelector)
		if err != nil {
			t.Fatal(err)
		}
		named := len(e.MatchConditions) == 0 || p.Name != "" && strings.Contains(e.MatchConditions[0].Expression, `"`+p.Name+`"`)
		if space.Matches(labels.Set{corev1.LabelMetadataName: p.Namespace}) && object.Matches(labels.Set(p.Labels)) && named {
			n++
		}
	}
	return n
}

func TestEntriesAreShared(t *testing.T) {
	web := selecting("app", "web")
	for name, tc := range map[string]struct {
		mckubes []*mcv1.McKube
		want    int
	}{
		"no McKubes":                       {nil, 0},
		"pod names of a namespace":         {[]*mcv1.McKube{mckube("a", podname("a")), mckube("b", podname("b"))}, 1},
		"pod names of two namespaces":      {[]*mcv1.McKube{mckube("a"), mckube("a", in("other"))}, 2},
		"a selector in two namespaces":     {[]*mcv1.McKube{mckube("a", web), mckube("a", web, in("other"))}, 1},
		"two selectors":                    {[]*mcv1.McKube{mckube("a", web), mckube("b", selecting("app", "db"))}, 2},
		"a selector of labelled pods":      {[]*mcv1.McKube{mckube("a", selecting("sdv.com", "cam"))}, 0},
		"no settings":                      {[]*mcv1.McKube{mckube("a", withoutSettings)}, 0},
		"namespaces that are left alone":   {[]*mcv1.McKube{mckube("a", in("kube-system")), mckube("b", in("mainspring-system"))}, 0},
		"no pods":                          {[]*mcv1.McKube{mckube("a", selecting()), mckube("b", podname(""))}, 0},
		"a label that must not be sdv.com": {[]*mcv1.McKube{mckube("a", func(m *mcv1.McKube) { selecting("app", "web")(m); without(m) })}, 1},
	} {
		entries, left, _ := webhooks.Entries(entryTemplate(t), tc.mckubes)
		if len(entries) != tc.want || len(left) > 0 {
			t.Errorf("%s: %d entries, %d left out", name, len(entries), len(left))
		}
	}
}

func without(m *mcv1.McKube) {
	m.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "sdv.com", Operator: metav1.LabelSelectorOpDoesNotExist}}
}

// An entry differs from the webhook of labelled pods in what it is for and in nothing else.
func TestEntriesAreAsStrictAsTheTemplate(t *testing.T) {
	template := entryTemplate(t)
	entries, _, _ := webhooks.Entries(template, []*mcv1.McKube{mckube("m"), mckube("s", selecting("app", "web"))})
	for _, e := range entries {
		if *e.FailurePolicy != admissionv1.Fail || *e.SideEffects != admissionv1.SideEffectClassNone || *e.TimeoutSeconds > 5 ||
			*e.ClientConfig.URL != "https://localhost:9443" || len(e.Rules) != 1 || e.Rules[0].Resources[0] != "pods" {
			t.Errorf("%+v", e)
		}
		if strings.Count(e.Name, ".") < 2 || !strings.Contains(e.Name, ".default.g") {
			t.Errorf("name %s", e.Name)
		}
	}
}

// Exactly the unlabelled pods that a McKube governs are sent, each once for each way it is governed.
func TestOnlyGovernedPodsAreSent(t *testing.T) {
	template := entryTemplate(t)
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SampledFrom([]string{"a", "b", "c"})
		space := rapid.SampledFrom([]string{"default", "other", "kube-system"})
		var mckubes []*mcv1.McKube
		for i := range rapid.IntRange(0, 6).Draw(t, "n") {
			how := podname(some.Draw(t, "podname"))
			if rapid.Bool().Draw(t, "by selector") {
				how = selecting("app", some.Draw(t, "app"))
			}
			mckubes = append(mckubes, mckube(fmt.Sprint(i), how, in(space.Draw(t, "namespace"))))
		}
		entries, left, _ := webhooks.Entries(template, mckubes)
		p := labelled(pod("app"), "app", some.Draw(t, "label"))
		p.Namespace, p.Name = space.Draw(t, "where"), rapid.SampledFrom([]string{"", "a", "b", "x"}).Draw(t, "name")
		if rapid.Bool().Draw(t, "sdv.com") {
			p.Labels["sdv.com"] = ""
		}
		_, marked := p.Labels["sdv.com"]
		governed := slices.ContainsFunc(mckubes, func(m *mcv1.McKube) bool { return mcv1.MatchPod(m, p) })
		want := governed && !marked && p.Namespace != "kube-system"
		if got := sent(t, entries, p); (got > 0) != want || got > 2 || len(left) > 0 {
			t.Fatalf("pod %s/%s %v is sent %d times, governed %t", p.Namespace, p.Name, p.Labels, got, governed)
		}
	})
}

func TestEntriesAreBounded(t *testing.T) {
	at := func(i int) func(*mcv1.McKube) {
		return func(m *mcv1.McKube) {
			m.CreationTimestamp = metav1.Time{Time: start.Add(time.Duration(i) * time.Second)}
		}
	}
	var mckubes []*mcv1.McKube
	for i := range 250 {
		mckubes = append(mckubes, mckube(fmt.Sprintf("s%d", i), selecting("app", fmt.Sprint(i)), at(i)))
	}
	slices.Reverse(mckubes)
	entries, left, _ := webhooks.Entries(entryTemplate(t), mckubes)
	if len(entries) != 200 || len(left) != 50 || left[0].Name != "s200" {
		t.Errorf("%d entries, %d left out", len(entries), len(left))
	}
	var names []*mcv1.McKube
	for i := range 250 {
		names = append(names, mckube(fmt.Sprintf("m%d", i), podname(fmt.Sprintf("pod-%d", i)), at(i)))
	}
	entries, left, _ = webhooks.Entries(entryTemplate(t), names)
	if len(entries) != 3 || len(left) != 0 || strings.Count(entries[0].MatchConditions[0].Expression, "pod-") != 100 {
		t.Errorf("%d entries for 250 names, %d left out", len(entries), len(left))
	}
}

// What one namespace asks for costs others nothing: neither their entries nor the object's size, which etcd bounds.
func TestEntriesOfOneNamespaceLeaveRoomForOthers(t *testing.T) {
	at := func(i int) func(*mcv1.McKube) {
		return func(m *mcv1.McKube) {
			m.CreationTimestamp = metav1.Time{Time: start.Add(time.Duration(i) * time.Second)}
		}
	}
	huge := func(m *mcv1.McKube) {
		m.Spec.Selector.MatchExpressions = append(m.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: make([]string, 3000)})
		for i := range 3000 {
			m.Spec.Selector.MatchExpressions[0].Values[i] = fmt.Sprintf("%063d", i)
		}
	}
	long := func(i int) func(*mcv1.McKube) {
		return func(m *mcv1.McKube) {
			m.Spec.Selector.MatchLabels["long"] = fmt.Sprintf("%063d", i)
			for k := range 50 {
				m.Spec.Selector.MatchLabels[fmt.Sprintf("k%d", k)] = fmt.Sprintf("%063d", k)
			}
		}
	}
	var mckubes []*mcv1.McKube
	for i := range 300 {
		mckubes = append(mckubes, mckube(fmt.Sprintf("greedy%d", i), selecting("app", fmt.Sprint(i)), in("greedy"), at(i), long(i)))
	}
	for i := range 3 {
		mckubes = append(mckubes, mckube(fmt.Sprintf("huge%d", i), selecting("app", fmt.Sprint(i)), in("greedy"), at(i), huge))
	}
	for i := range 5000 { // one selector in many namespaces
		mckubes = append(mckubes, mckube("shared", selecting("app", "shared"), in(fmt.Sprintf("namespace-%04d", i)), at(400)))
	}
	mckubes = append(mckubes, mckube("modest", selecting("app", "brake"), in("modest"), at(1000)))
	entries, left, tooLong := webhooks.Entries(entryTemplate(t), mckubes)
	if !slices.ContainsFunc(entries, func(e admissionv1.MutatingWebhook) bool { return strings.HasPrefix(e.Name, "modest.modest.") }) {
		t.Error("the McKube of another namespace has no entry")
	}
	if len(tooLong) != 3 || slices.ContainsFunc(left, func(m *mcv1.McKube) bool { return m.Namespace != "greedy" }) {
		t.Errorf("%d are too long; left out are %d", len(tooLong), len(left))
	}
	data, err := json.Marshal(admissionv1.MutatingWebhookConfiguration{Webhooks: entries})
	if err != nil || len(data) > 1_400_000 {
		t.Errorf("the configuration has %d bytes: %v", len(data), err)
	}
}

// Two names that are cut alike stay different, and the API server takes each.
func TestEntriesAreNamedByTheirMcKube(t *testing.T) {
	long := strings.Repeat("a", 127) + "."
	mckubes := []*mcv1.McKube{
		mckube("camera", in(strings.Repeat("n", 63))), mckube(long+"x", selecting("app", "x")), mckube(long+"y", selecting("app", "y")),
	}
	entries, _, _ := webhooks.Entries(entryTemplate(t), mckubes)
	seen := map[string]bool{}
	for _, e := range entries {
		seen[e.Name] = true
		if errs := validation.IsFullyQualifiedName(field.NewPath("name"), e.Name); len(errs) > 0 {
			t.Error(errs)
		}
	}
	if len(seen) != 3 || !slices.ContainsFunc(entries, func(e admissionv1.MutatingWebhook) bool { return strings.HasPrefix(e.Name, "camera.nnn") }) {
		t.Errorf("names %v", seen)
	}
}
