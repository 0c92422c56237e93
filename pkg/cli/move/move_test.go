package move_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cli/move"
	"github.com/mainspring-rt/mainspring/pkg/test/apiserver"
	"github.com/mainspring-rt/mainspring/pkg/test/mortal"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// scene is an API server with a pod on node a. The test is the controller.
type scene struct {
	*testing.T
	api       client.WithWatch
	namespace string
	out       strings.Builder
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, api: apiserver.Client(t, apiserver.Scheme(t))}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "move-"}}
	s.must(s.api.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	s.must(s.api.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"}, Spec: corev1.PodSpec{
		NodeName: "a", Containers: []corev1.Container{{Name: "app", Image: "none"}},
	}}))
	t.Cleanup(func() {
		apiserver.Empty(t, s.api, &v1alpha1.PodMigrationList{}, &corev1.PodList{}, &corev1.NodeList{})
	})
	return s
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) create() *v1alpha1.PodMigration {
	s.Helper()
	m, err := move.Create(s.Context(), s.api, move.Request{Namespace: s.namespace, Pod: "web", Trigger: v1alpha1.TriggerManual, Timeout: time.Minute, Strategy: v1alpha1.StrategySurge})
	s.must(err)
	return m
}

// status writes one, as the controller does.
func (s *scene) status(m *v1alpha1.PodMigration, phase v1alpha1.MigrationPhase, message string) {
	s.Helper()
	s.must(s.api.Get(context.Background(), client.ObjectKeyFromObject(m), m))
	m.Status.Phase, m.Status.Message, m.Status.Strategy = phase, message, v1alpha1.StrategySurge
	m.Status.Target = &v1alpha1.MigrationEnd{Node: "b", PodName: "web-2"}
	m.Status.UnavailableMilliseconds = ptr.To(int64(1234))
	s.must(s.api.Status().Update(context.Background(), m))
}

func (s *scene) follower(api client.Client) move.Follower {
	return move.Follower{Client: api, Clock: clock.RealClock{}, Out: &s.out, Every: time.Millisecond, Farewell: 20 * time.Second}
}

// turns has the controller act before each look at the migration.
func (s *scene) turns(m *v1alpha1.PodMigration, acts ...func()) client.Client {
	n := 0
	return mortal.Guarded(s.api, func(call func() error) error {
		if n < len(acts) {
			acts[n]()
		}
		n++
		return call()
	}, mortal.Always)
}

func TestRequestsThatCannotBe(t *testing.T) {
	s := newScene(t)
	s.must(s.api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "move-b"}}))
	for _, c := range []struct{ pod, to, want string }{
		{"web", "", ""}, {"web", "move-b", ""}, {"wbe", "", "pod " + s.namespace + "/wbe not found"}, {"web", "a", "is on node a already"}, {"web", "c", "node c not found"},
	} {
		_, err := move.Pod(t.Context(), s.api, move.Request{Namespace: s.namespace, Pod: c.pod, To: c.to})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v, want %q", c.pod, c.to, err, c.want)
		}
	}
}

// The name of the migration begins with the pod's: the API server keeps 58 characters of it before its own.
func TestPodsWithNamesOfFullLength(t *testing.T) {
	s := newScene(t)
	for _, pod := range []string{strings.Repeat("a", 253), strings.Repeat("a", 199) + "." + strings.Repeat("b", 40), strings.Repeat("a.", 120) + "b"} {
		m, err := move.Create(t.Context(), s.api, move.Request{Namespace: s.namespace, Pod: pod, Trigger: v1alpha1.TriggerManual, Strategy: v1alpha1.StrategySurge})
		if err != nil {
			t.Errorf("%s: %v", pod, err)
		} else if m.Spec.PodName != pod || !strings.HasPrefix(m.Name, pod[:57]) {
			t.Errorf("%s is migrated by %s of pod %s", pod, m.Name, m.Spec.PodName)
		}
	}
}

func TestFollowingToTheEnd(t *testing.T) {
	s := newScene(t)
	m := s.create()
	if m.Spec.Strategy != v1alpha1.StrategySurge || m.Spec.Timeout.Duration != time.Minute || !strings.HasPrefix(m.Name, "web-") {
		t.Errorf("got %+v", m)
	}
	api := s.turns(m, func() {}, func() { s.status(m, v1alpha1.MigrationReserving, "keeping room") }, func() {}, func() { s.status(m, v1alpha1.MigrationSucceeded, "") })
	over, err := s.follower(api).Follow(t.Context(), client.ObjectKeyFromObject(m))
	s.must(err)
	var got []string
	for line := range strings.Lines(s.out.String()) {
		_, words, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got = append(got, words)
	}
	if want := "Pending|Reserving, Surge, to node b: keeping room|Succeeded, Surge, to node b"; strings.Join(got, "|") != want {
		t.Errorf("got %s", strings.Join(got, "|"))
	}
	if want := "pod " + s.namespace + "/web runs on node b as web-2 (Surge); it was unavailable for 1.2 s"; move.Summary(over) != want {
		t.Errorf("got %s", move.Summary(over))
	}
	m.Status.Phase, m.Status.Message = v1alpha1.MigrationRolledBack, "the target died"
	if want := "pod " + s.namespace + "/web: RolledBack, Surge, to node b: the target died"; move.Summary(m) != want {
		t.Errorf("got %s", move.Summary(m))
	}
}

func TestAnInterruptAborts(t *testing.T) {
	s := newScene(t)
	m := s.create()
	ctx, interrupt := context.WithCancel(t.Context())
	aborted := func() {
		s.must(s.api.Get(context.Background(), client.ObjectKeyFromObject(m), m))
		if m.Spec.Abort {
			s.status(m, v1alpha1.MigrationAborted, "undone")
		}
	}
	api := s.turns(m, func() { s.status(m, v1alpha1.MigrationRestoring, "") }, interrupt, aborted, aborted)
	over, err := s.follower(api).Follow(ctx, client.ObjectKeyFromObject(m))
	if !errors.Is(err, context.Canceled) || over.Status.Phase != v1alpha1.MigrationAborted || !strings.Contains(s.out.String(), "interrupted: aborting") {
		t.Errorf("%v, %+v\n%s", err, over, s.out.String())
	}
}

// What does not end within the farewell is left to itself, and that is said.
func TestAnAbortThatDoesNotEnd(t *testing.T) {
	s := newScene(t)
	m := s.create()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	f := s.follower(s.api)
	f.Farewell = 500 * time.Millisecond
	if _, err := f.Follow(ctx, client.ObjectKeyFromObject(m)); err == nil || !strings.Contains(err.Error(), "has not ended within 500ms; it goes on by itself") {
		t.Errorf("got %v", err)
	}
	s.must(s.api.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	if !m.Spec.Abort {
		t.Error("it was not aborted")
	}
}

func TestAnAPIServerThatIsAwayForAMoment(t *testing.T) {
	s := newScene(t)
	m := s.create()
	s.status(m, v1alpha1.MigrationSucceeded, "")
	for away, want := range map[int]bool{move.Patience - 1: true, move.Patience: false} {
		n := 0
		api := mortal.Guarded(s.api, func(call func() error) error {
			if n++; n <= away {
				return apierrors.NewServiceUnavailable("away")
			}
			return call()
		}, mortal.Always)
		if _, err := s.follower(api).Follow(t.Context(), client.ObjectKeyFromObject(m)); (err == nil) != want {
			t.Errorf("away for %d: %v", away, err)
		}
	}
	s.must(s.api.Delete(t.Context(), m))
	if _, err := s.follower(s.api).Follow(t.Context(), client.ObjectKeyFromObject(m)); err == nil || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("got %v", err)
	}
}
