package webhooks_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/webhooks"
)

func levels(runtimes ...int64) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) {
		for i, r := range runtimes {
			m.Spec.RTSettings.Levels = append(m.Spec.RTSettings.Levels, mcv1.Level{Name: string(rune('a' + i)), Runtime: r})
		}
	}
}

func tasks(list ...mcv1.Task) func(*mcv1.McKube) {
	return func(m *mcv1.McKube) { m.Spec.RTSettings.Tasks = list }
}

func TestMcKubesThatAreFine(t *testing.T) {
	w := &world{mckubes: []*mcv1.McKube{mckube("other", podname("other")), mckube("m")}, pods: []*corev1.Pod{pod("app")}}
	for name, m := range map[string]*mcv1.McKube{
		"alone":                  mckube("m"),
		"preferring cores":       mckube("m", onCores("0,2-3")),
		"the least budget":       mckube("m", budget(10_000, 100, 100)),
		"levels in any order":    mckube("m", levels(1_500, 1_200)),
		"without settings":       mckube("x", withoutSettings),
		"for the same container": mckube("m", of("app")),
		"for others by selector": mckube("x", selecting("app", "web")),
		"tasks that are served":  mckube("m", budget(2_000, 1_000, 1_000), tasks(mcv1.Task{Period: 20_000, WCET: 4_000})),
	} {
		warnings, errs, _ := webhooks.ValidateMcKube(t.Context(), m, w, granularity)
		if len(errs) > 0 || len(warnings) > 0 {
			t.Errorf("%s: %v %v", name, errs, warnings)
		}
	}
}

func TestMcKubesThatAreRefused(t *testing.T) {
	badSelector := mckube("m", selecting("app", "not a value"))
	badOperator := mckube("m", selecting())
	badOperator.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}
	for name, tc := range map[string]struct {
		mckube *mcv1.McKube
		want   []string
	}{
		"a name that no pod has":       {mckube("m", podname("My_App")), []string{"spec.podname", `"My_App"`, "lower case"}},
		"a name that no container has": {mckube("m", of("a.b")), []string{"spec.container", `"a.b"`}},
		"a name that no node has":      {mckube("m", onNode("n_1")), []string{"spec.node", `"n_1"`}},
		"a label that no pod has":      {badSelector, []string{"spec.selector.matchLabels", "not a value"}},
		"a requirement of nothing":     {badOperator, []string{"spec.selector.matchExpressions[0].values", "must be specified"}},
		"a core twice":                 {mckube("m", onCores("1-3,2")), []string{"spec.rtSettings.core", `"1-3,2"`, "each core once", "4 are listed, 3 are different"}},
		"no list of cores":             {mckube("m", onCores("3-1")), []string{"spec.rtSettings.core", `"3-1"`, "cpuset list"}},
		"too small to enforce":         {mckube("m", budget(10_000, 99, 2_000)), []string{"spec.rtSettings.runtime_low", "99", "at least 100 microseconds"}},
		"a level twice":                {mckube("m", levels(1_500, 1_500)), []string{"spec.rtSettings.levels[1].runtime", "1500", "Duplicate"}},
		"what CEL would have refused":  {mckube("m", budget(10_000, 1_000, 9_999)), []string{"runtime_hi: 9999us", "9500us"}},
		"a criticality of its own":     {mckube("m", critical("urgent")), []string{`"urgent"`, "High, Middle, Low"}},
	} {
		_, errs, _ := webhooks.ValidateMcKube(t.Context(), tc.mckube, &world{}, granularity)
		for _, want := range tc.want {
			if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), want) {
				t.Errorf("%s: %v, want %q", name, errs, want)
			}
		}
	}
}

func TestMcKubesInConflict(t *testing.T) {
	web := labelled(pod("app"), "app", "web", "tier", "front")
	for name, tc := range map[string]struct {
		mckube, other *mcv1.McKube
		pods          []*corev1.Pod
		want          string
	}{
		"the same pod":                        {mckube("m"), mckube("o"), nil, "spec.podname"},
		"the same pod and container":          {mckube("m", of("a")), mckube("o", of("a")), nil, "spec.podname"},
		"one container left out":              {mckube("m", of("a")), mckube("o"), nil, "spec.podname"},
		"other containers of the pod":         {mckube("m", of("a")), mckube("o", of("b")), nil, ""},
		"other pods":                          {mckube("m"), mckube("o", podname("x")), nil, ""},
		"another namespace":                   {mckube("m"), mckube("o", in("other")), nil, ""},
		"nothing governed by the other":       {mckube("m"), mckube("o", withoutSettings), nil, ""},
		"itself, on update":                   {mckube("m"), mckube("m"), nil, ""},
		"the same selector":                   {mckube("m", selecting("app", "web")), mckube("o", selecting("app", "web")), nil, "spec.selector"},
		"a narrower selector":                 {mckube("m", selecting("app", "web", "tier", "front")), mckube("o", selecting("app", "web")), nil, "spec.selector"},
		"a wider selector":                    {mckube("m", selecting("app", "web")), mckube("o", selecting("app", "web", "tier", "front")), nil, "spec.selector"},
		"selectors that may meet":             {mckube("m", selecting("app", "web")), mckube("o", selecting("tier", "front")), nil, ""},
		"selectors that meet":                 {mckube("m", selecting("app", "web")), mckube("o", selecting("tier", "front")), []*corev1.Pod{web}, "spec.selector"},
		"selectors that meet, not containers": {mckube("m", selecting("app", "web"), of("app")), mckube("o", selecting("tier", "front"), of("log")), []*corev1.Pod{web}, ""},
		"a name and a selector":               {mckube("m"), mckube("o", selecting("app", "web")), []*corev1.Pod{web}, "spec.podname"},
		"a name and a selector, no pod":       {mckube("m"), mckube("o", selecting("app", "web")), nil, ""},
	} {
		w := &world{mckubes: []*mcv1.McKube{tc.other}, pods: tc.pods}
		_, errs, _ := webhooks.ValidateMcKube(t.Context(), tc.mckube, w, granularity)
		if (len(errs) > 0) != (tc.want != "") {
			t.Errorf("%s: %v", name, errs)
		}
		if len(errs) > 0 && (errs[0].Field != tc.want || !strings.Contains(errs[0].Error(), "McKube o governs")) {
			t.Errorf("%s: %v, want field %s", name, errs, tc.want)
		}
	}
}

func TestMcKubesThatAreAdvisedAgainst(t *testing.T) {
	for name, tc := range map[string]struct {
		mckube *mcv1.McKube
		pods   []*corev1.Pod
		want   []string
	}{
		"more than a core promises":  {mckube("m", budget(10_000, 1_000, 9_000)), nil, []string{"910000 ppm", "900000 ppm", "stay pending"}},
		"an escalation that is none": {mckube("m", critical("low")), nil, []string{"spec.rtSettings.runtime_hi: 2000 us is given only where the core has room", "1000 us, is promised"}},
		"tasks that are late":        {mckube("m", budget(10_000, 1_000, 1_000), tasks(mcv1.Task{Period: 100_000, WCET: 50_000})), nil, []string{"spec.rtSettings.tasks[0] (wcet 50000 us every 100000 us)", "runtime_low, 1000 us in every 10000 us", "no budget up to runtime_hi"}},
		"tasks that need the raise":  {mckube("m", budget(2_000, 200, 1_500), tasks(mcv1.Task{Period: 20_000, WCET: 8_000})), nil, []string{"only 1500 us, after an escalation"}},
		"a period that is too long":  {mckube("m", budget(10_000, 6_000, 6_000), tasks(mcv1.Task{Period: 1_000, WCET: 100})), nil, []string{"spec.rtSettings.period: 10000 us", "shortest period of a task, 1000 us", "without CPU for 8000 us"}},
		"a pod without it":           {mckube("m", of("db")), []*corev1.Pod{pod("app")}, []string{`"db", which pod app does not have`}},
		"a pod with several":         {mckube("m"), []*corev1.Pod{pod("app", "log")}, []string{"several containers"}},
	} {
		warnings, errs, _ := webhooks.ValidateMcKube(t.Context(), tc.mckube, &world{pods: tc.pods}, granularity)
		if len(errs) > 0 {
			t.Errorf("%s: refused: %v", name, errs)
		}
		for _, want := range tc.want {
			if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, want) }) {
				t.Errorf("%s: warnings %q, want %q", name, warnings, want)
			}
		}
	}
}

func TestPodsWhoseSettingsContradict(t *testing.T) {
	m := mckube("m", func(m *mcv1.McKube) { m.Spec.RTSettings.Deadline = ptr.To(int64(8_000)) })
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		mckubes []*mcv1.McKube
		warn    string
		want    []string
	}{
		"as the McKube says":         {annotated(pod("app"), "mckube.io/rt-period", "10000", "mckube.io/rt-runtime-hi", "2000"), []*mcv1.McKube{m}, "", nil},
		"none":                       {pod("app"), []*mcv1.McKube{m}, "", nil},
		"another period":             {annotated(pod("app"), "mckube.io/rt-period", "20000"), []*mcv1.McKube{m}, "", []string{"metadata.annotations[mckube.io/rt-period]", `"20000"`, "McKube m", `"10000"`}},
		"several contradictions":     {annotated(pod("app"), "mckube.io/rt-period", "1", "mckube.io/rt-runtime-low", "x"), []*mcv1.McKube{m}, "", []string{"rt-period", "rt-runtime-low"}},
		"a missing container":        {pod("web"), []*mcv1.McKube{mckube("m", of("app"))}, "", []string{`"app", which pod app does not have`}},
		"two McKubes":                {pod("app"), []*mcv1.McKube{mckube("a"), mckube("b")}, "", []string{"McKubes a and b"}},
		"two nodes":                  {pod("a", "b"), []*mcv1.McKube{mckube("a", of("a"), onNode("x")), mckube("b", of("b"), onNode("y"))}, "", []string{"same node"}},
		"no effect":                  {annotated(pod("app"), "mckube.io/rt-period", "20000", "mckube.io/rt-runtime-low", "5000"), nil, "no McKube", nil},
		"no number":                  {annotated(pod("app"), "mckube.io/rt-period", "soon"), nil, "", []string{"rt-period", `"soon"`, "microseconds above 0"}},
		"no time at all":             {annotated(pod("app"), "mckube.io/rt-runtime-hi", "0"), nil, "", []string{"rt-runtime-hi", `"0"`, "above 0"}},
		"a period out of range":      {annotated(pod("app"), "mckube.io/rt-period", "99"), nil, "", []string{"rt-period", "99", "100 to 10000000"}},
		"low above hi":               {annotated(pod("app"), "mckube.io/rt-runtime-low", "3", "mckube.io/rt-runtime-hi", "2"), nil, "", []string{"rt-runtime-low", "is 3", "rt-runtime-hi, 2"}},
		"more than the period takes": {annotated(pod("app"), "mckube.io/rt-period", "1000", "mckube.io/rt-runtime-hi", "951"), nil, "", []string{"rt-runtime-hi", "951", "at most 950"}},
		"one of two containers":      {annotated(pod("app", "log"), "mckube.io/rt-period", "app=1000,log=1"), nil, "", []string{"rt-period", "container log"}},
	} {
		warnings, err := webhooks.ValidatePod(tc.pod, tc.mckubes)
		if (err != nil) != (tc.want != nil) || strings.Contains(strings.Join(warnings, ""), "no effect") != (tc.warn != "") {
			t.Errorf("%s: %v, warnings %q", name, err, warnings)
		}
		for _, want := range tc.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// An update must not be refused for what only the McKubes are to blame for: the controller could never write
// the annotations of the McKube that governs.
func TestSettingsOfARunningPod(t *testing.T) {
	longer := mckube("younger", budget(20_000, 1_000, 2_000))
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		mckubes []*mcv1.McKube
		want    string
	}{
		"as the McKube says":             {annotated(pod("app"), "mckube.io/rt-period", "10000"), []*mcv1.McKube{mckube("m")}, ""},
		"otherwise":                      {annotated(pod("app"), "mckube.io/rt-period", "20000"), []*mcv1.McKube{mckube("m")}, "rt-period"},
		"as the older McKube says":       {annotated(pod("app"), "mckube.io/rt-period", "10000"), []*mcv1.McKube{mckube("m"), longer}, ""},
		"as the younger one says":        {annotated(pod("app"), "mckube.io/rt-period", "20000"), []*mcv1.McKube{mckube("m"), longer}, "McKube m says"},
		"beside one without a container": {annotated(pod("app"), "mckube.io/rt-period", "10000"), []*mcv1.McKube{mckube("m"), mckube("x", of("db"))}, ""},
		"with no McKube":                 {annotated(pod("app"), "mckube.io/rt-period", "20000"), nil, ""},
		"with no McKube, nonsense":       {annotated(pod("app"), "mckube.io/rt-period", "soon"), nil, "microseconds above 0"},
	} {
		err := webhooks.ValidatePodUpdate(tc.pod, tc.mckubes)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
