package v1_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

func mckube(spec mcv1.McKubeSpec) *mcv1.McKube {
	return &mcv1.McKube{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "m"}, Spec: spec}
}

func pod(namespace, name string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

func TestMatchPod(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for name, tc := range map[string]struct {
		spec mcv1.McKubeSpec
		pod  *corev1.Pod
		want bool
	}{
		"the name":            {mcv1.McKubeSpec{Podname: "p"}, pod("a", "p"), true},
		"another name":        {mcv1.McKubeSpec{Podname: "p"}, pod("a", "q"), false},
		"another namespace":   {mcv1.McKubeSpec{Podname: "p"}, pod("b", "p"), false},
		"the labels":          {mcv1.McKubeSpec{Selector: web}, pod("a", "x"), true},
		"labels elsewhere":    {mcv1.McKubeSpec{Selector: web}, pod("b", "x"), false},
		"nothing":             {mcv1.McKubeSpec{}, pod("a", ""), false},
		"an empty selector":   {mcv1.McKubeSpec{Selector: &metav1.LabelSelector{}}, pod("a", "p"), false},
		"an invalid selector": {mcv1.McKubeSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}}, pod("a", "p"), false},
	} {
		if got := mcv1.MatchPod(mckube(tc.spec), tc.pod); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestContainerOf(t *testing.T) {
	withSidecar := pod("a", "p", "app")
	withSidecar.Spec.InitContainers = []corev1.Container{
		{Name: "setup"}, {Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
	}
	generated := pod("a", "", "app", "log")
	generated.GenerateName = "web-"
	for name, tc := range map[string]struct {
		container string
		pod       *corev1.Pod
		want, err string
	}{
		"the only one":        {"", pod("a", "p", "app"), "app", ""},
		"named":               {"log", pod("a", "p", "app", "log"), "log", ""},
		"a sidecar":           {"proxy", withSidecar, "proxy", ""},
		"not beside sidecars": {"", withSidecar, "app", ""},
		"one that ends":       {"setup", withSidecar, "", `"setup", which pod p does not have; it has app, proxy`},
		"none of them":        {"db", pod("a", "p", "app"), "", `spec.container of McKube m is "db"`},
		"not said which":      {"", generated, "", "pod web-* has several containers; it must name one of app, log"},
	} {
		got, err := mcv1.ContainerOf(mckube(mcv1.McKubeSpec{Container: tc.container}), tc.pod)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestParseCores(t *testing.T) {
	for list, want := range map[string][]int{"2-3": {2, 3}, "0,2": {0, 2}, "5": {5}, "3,1-2,2": {1, 2, 3}} {
		if got, err := mcv1.ParseCores(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"3-2", "a", "1,", "-1", "0x1"} {
		if got, err := mcv1.ParseCores(list); err == nil {
			t.Errorf("%q is read as %v", list, got)
		}
	}
}
