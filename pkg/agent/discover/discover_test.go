package discover_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/agent/discover"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

func id(n int) string { return fmt.Sprintf("%064x", n) }

func runs(name string, n int) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id(n), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func ended(name string, n int) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id(n), State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
}

func pod(uid types.UID, statuses ...corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p-" + string(uid), UID: uid}}
	for _, s := range statuses {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: s.Name, Image: "an image"})
	}
	p.Status.Phase, p.Status.ContainerStatuses = corev1.PodRunning, statuses
	return p
}

// machine has groups by container ID.
type machine struct {
	groups   map[string]string
	searches int
	err      error
}

func (m *machine) ContainerGroup(podUID, containerID string) (string, error) {
	m.searches++
	if m.err != nil {
		return "", m.err
	}
	_, bare, found := strings.Cut(containerID, "://")
	if !found {
		bare = containerID
	}
	if group, ok := m.groups[bare]; ok {
		return "/kubepods/pod" + podUID + "/" + group, nil
	}
	return "", fmt.Errorf("%w: %s", host.ErrNotFound, containerID)
}

func TestContainersOfEveryKindAreSeen(t *testing.T) {
	t.Parallel()
	full := pod("a", runs("app", 1), ended("side", 2))
	full.Spec.InitContainers = []corev1.Container{{Name: "init"}, {Name: "sidecar"}}
	full.Status.InitContainerStatuses = []corev1.ContainerStatus{runs("sidecar", 3), runs("stranger", 4)}
	done := pod("b", runs("app", 5))
	done.Status.Phase = corev1.PodSucceeded
	static := pod("c", runs("app", 6))
	static.Annotations = map[string]string{"kubernetes.io/config.mirror": "0123456789abcdef", "large": strings.Repeat("x", 100)}
	var slim []*corev1.Pod
	for _, p := range []*corev1.Pod{full, done, static} {
		out, err := discover.Slim(p)
		if err != nil {
			t.Fatal(err)
		}
		slim = append(slim, out.(*corev1.Pod))
	}
	want := map[discover.Key]discover.Container{
		{Pod: "a", Container: "app"}:     {Namespace: "default", Pod: "p-a", GroupUID: "a", ID: "containerd://" + id(1)},
		{Pod: "a", Container: "side"}:    {Namespace: "default", Pod: "p-a", GroupUID: "a"},
		{Pod: "a", Container: "init"}:    {Namespace: "default", Pod: "p-a", GroupUID: "a"},
		{Pod: "a", Container: "sidecar"}: {Namespace: "default", Pod: "p-a", GroupUID: "a", ID: "containerd://" + id(3)},
		{Pod: "c", Container: "app"}:     {Namespace: "default", Pod: "p-c", GroupUID: "0123456789abcdef", ID: "containerd://" + id(6)},
	}
	got := discover.Containers(slim)
	if len(got) != len(want) {
		t.Errorf("%d containers: %v", len(got), got)
	}
	for key, c := range want {
		if got[key] != c {
			t.Errorf("%v: %+v, want %+v", key, got[key], c)
		}
	}
	if slim[0].Spec.Containers[0].Image != "" || len(slim[2].Annotations) != 1 {
		t.Error("the cache keeps what nobody reads")
	}
	if same, err := discover.Slim("something else"); same != "something else" || err != nil {
		t.Errorf("%v, %v", same, err)
	}
}

func TestARestartedContainerHasANewGroup(t *testing.T) {
	t.Parallel()
	m := &machine{groups: map[string]string{id(1): "one"}}
	f := discover.NewFinder(m, func() {})
	key := discover.Key{Pod: "a", Container: "app"}
	look := func(p *corev1.Pod, group string, complete bool) {
		t.Helper()
		found, all := f.Find(discover.Containers([]*corev1.Pod{p}))
		if found[key].Cgroup != group || all != complete || found[key].Err != nil {
			t.Errorf("group %q, complete %t, %v; want %q, %t", found[key].Cgroup, all, found[key].Err, group, complete)
		}
	}
	look(pod("a", runs("app", 1)), "/kubepods/poda/one", true)
	look(pod("a", runs("app", 1)), "/kubepods/poda/one", true)
	if m.searches != 1 {
		t.Errorf("%d searches for one container", m.searches)
	}
	look(pod("a", ended("app", 1)), "", true)
	look(pod("a", runs("app", 2)), "", false) // its group is on the way
	m.groups[id(2)] = "two"
	look(pod("a", runs("app", 2)), "/kubepods/poda/two", true)
	if found, _ := f.Find(nil); len(found) != 0 {
		t.Errorf("found %v without pods", found)
	}
}

func TestTheRuntimesWordCountsUntilTheAPIKnows(t *testing.T) {
	t.Parallel()
	told := 0
	m := &machine{groups: map[string]string{}}
	f := discover.NewFinder(m, func() { told++ })
	key := discover.Key{Pod: "a", Container: "app"}
	group := func(p *corev1.Pod) string {
		t.Helper()
		found, _ := f.Find(discover.Containers([]*corev1.Pod{p}))
		return found[key].Cgroup
	}
	created := pod("a", corev1.ContainerStatus{Name: "app"})
	f.Created("a", "app", id(1), "/kubepods/poda/one")
	if told != 1 || group(created) != "" {
		t.Error("a group that is not there yet is given")
	}
	m.groups[id(1)] = "one"
	if got := group(created); got != "/kubepods/poda/one" {
		t.Errorf("before the kubelet reports it: %q", got)
	}
	if got := group(pod("a", runs("app", 1))); got != "/kubepods/poda/one" {
		t.Errorf("after: %q", got)
	}
	// It restarts: the runtime tells of the new one while the API still has the old.
	m.groups = map[string]string{id(2): "two"}
	f.Created("a", "app", id(2), "")
	if got := group(pod("a", runs("app", 1))); got != "/kubepods/poda/two" {
		t.Errorf("while the API lags: %q", got)
	}
	// The API skips it and tells of a third.
	m.groups[id(3)] = "three"
	if got := group(pod("a", runs("app", 3))); got != "/kubepods/poda/three" {
		t.Errorf("when the API knows better: %q", got)
	}
	if got := group(pod("a", ended("app", 3))); got != "" {
		t.Errorf("after it has ended: %q", got)
	}
	// One that the kubelet never saw run ends with its group.
	m.groups[id(4)] = "four"
	f.Created("a", "app", id(4), "")
	if got := group(pod("a", ended("app", 3))); got != "/kubepods/poda/four" {
		t.Errorf("created: %q", got)
	}
	delete(m.groups, id(4))
	if got := group(pod("a", ended("app", 3))); got != "" {
		t.Errorf("ended unseen: %q", got)
	}
}

func TestAMachineThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	m := &machine{err: errors.New("no cgroups")}
	found, complete := discover.NewFinder(m, func() {}).Find(discover.Containers([]*corev1.Pod{pod("a", runs("app", 1))}))
	if f := found[discover.Key{Pod: "a", Container: "app"}]; f.Err == nil || f.Cgroup != "" || !complete {
		t.Errorf("%+v, complete %t", f, complete)
	}
}
