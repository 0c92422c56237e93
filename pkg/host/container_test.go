package host_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
)

func TestContainerGroup(t *testing.T) {
	t.Parallel()
	mounts := map[string]func(*hosttest.Tree){
		"v1":       func(tr *hosttest.Tree) { tr.CgroupsV1(true, "cpu,cpuacct", "cpuset") },
		"hybrid":   func(tr *hosttest.Tree) { tr.CgroupsHybrid(true, "cpu", "cpuset") },
		"v2":       func(tr *hosttest.Tree) { tr.CgroupsV2(hosttest.NoRTFiles, "cpu", "cpuset") },
		"v2 alone": func(tr *hosttest.Tree) { tr.CgroupsV2(hosttest.NoRTFiles) },
	}
	for version, mount := range mounts {
		for _, kubelet := range kubelets() {
			t.Run(version+" "+kubelet.Pod("qos", "uid")+" "+kubelet.Runtime, func(t *testing.T) {
				t.Parallel()
				tree := hosttest.New(t)
				tree.CPUs(hosttest.CPU{ID: 0})
				mount(tree)
				tree.Group("/system.slice/ssh.service")
				for i, qos := range []string{hosttest.Guaranteed, hosttest.Burstable, hosttest.BestEffort} {
					uid := podUID[:len(podUID)-1] + string(rune('0'+i))
					want := tree.Container(kubelet, qos, uid, container)
					second := tree.Container(kubelet, qos, uid, other)
					expectGroup(t, tree, uid, container, want)
					expectGroup(t, tree, uid, kubelet.Runtime+"://"+other, second)
				}
				if _, err := tree.Host().ContainerGroup(podUID, container); !errors.Is(err, host.ErrNotFound) {
					t.Errorf("another pod: got %v", err)
				}
			})
		}
	}
}

func kubelets() []hosttest.Kubelet {
	var all []hosttest.Kubelet
	for _, systemd := range []bool{false, true} {
		for _, runtime := range []string{host.Containerd, host.CRIO, host.Docker} {
			for _, root := range []string{"", "node2", "my-root"} {
				all = append(all, hosttest.Kubelet{Systemd: systemd, Runtime: runtime, Root: root})
			}
		}
	}
	return all
}

func expectGroup(t *testing.T, tree *hosttest.Tree, uid, id, want string) {
	t.Helper()
	if got, err := tree.Host().ContainerGroup(uid, id); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	cgroups, err := tree.Host().Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := cgroups.ContainerGroup(uid, id); err != nil || got != want {
		t.Errorf("of kept hierarchies: got %q, %v, want %q", got, err, want)
	}
}

// Names as real nodes have them, letter by letter: the fake trees above are built by the same rules as the search.
func TestContainerGroupOfRealNames(t *testing.T) {
	t.Parallel()
	const static = "8a1ee1b2c3d4e5f60718293a4b5c6d7e" // a static pod's UID is a hash
	for _, path := range []string{
		"/kubepods/burstable/pod" + podUID + "/" + container,
		"/kubepods/pod" + static + "/" + container,
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0c1f6a5e_3c9e_4d0a_9c3b_6b1a2f4d5e6f.slice/cri-containerd-" + container + ".scope",
		"/kubepods.slice/kubepods-pod0c1f6a5e_3c9e_4d0a_9c3b_6b1a2f4d5e6f.slice/crio-" + container + ".scope",
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + static + ".slice/cri-containerd-" + container + ".scope",
		"/docker/" + other + "/kubelet/kubepods/burstable/pod" + podUID + "/" + container,
	} {
		tree := hosttest.Distribution(t)
		tree.Group(path)
		uid := podUID
		if strings.Contains(path, static) {
			uid = static
		}
		expectGroup(t, tree, uid, "containerd://"+container, path)
	}
}

// crun puts the processes of a scope into a group below it; a container that has made groups of its own has its
// processes where the runtime put them.
func TestContainerGroupIsWhereTheProcessesAre(t *testing.T) {
	t.Parallel()
	kubelet := hosttest.Kubelet{Systemd: true, Runtime: host.CRIO}
	for name, c := range map[string]struct {
		inner, procs string
		want         string
	}{
		"crun":              {"container", "", "/container"},
		"runc":              {"", "17\n", ""},
		"a group of theirs": {"container", "17\n", ""},
		"of another name":   {"app", "", ""},
	} {
		tree := hosttest.Distribution(t)
		group := tree.Container(kubelet, hosttest.Burstable, podUID, container)
		tree.Write(path.Join("sys/fs/cgroup", group, "cgroup.procs"), c.procs)
		if c.inner != "" {
			tree.Group(path.Join(group, c.inner))
		}
		t.Run(name, func(t *testing.T) { expectGroup(t, tree, podUID, "cri-o://"+container, group+c.want) })
	}
}

// The seed took an empty ID for the first container it met.
func TestContainerGroupRefusesEmptyAndForeignNames(t *testing.T) {
	t.Parallel()
	tree := hosttest.Lab(t)
	tree.Container(hosttest.Kubelet{Runtime: host.Containerd}, hosttest.Burstable, podUID, container)
	for _, ask := range [][2]string{
		{podUID, ""}, {"", container}, {podUID, "containerd://"}, {podUID, container[:12]}, {podUID, "*"}, {"..", container},
		{podUID + "/" + container + "/..", container}, {podUID, "rkt://" + container}, {"-", container},
	} {
		if group, err := tree.Host().ContainerGroup(ask[0], ask[1]); err == nil || errors.Is(err, host.ErrNotFound) {
			t.Errorf("%q: got %q, %v, want a refusal", ask, group, err)
		}
	}
}
