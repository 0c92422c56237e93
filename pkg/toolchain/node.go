package toolchain

// The programs of a real node. No recipe of theirs is built unless it is asked for.
const (
	Kubelet        Tool = "kubelet"
	Containerd     Tool = "containerd"
	Ctr            Tool = "ctr"
	ContainerdShim Tool = "containerd-shim-runc-v2"
	Runc           Tool = "runc"
)

const (
	containerdModule = "github.com/containerd/containerd/v2"
	runcModule       = "github.com/opencontainers/runc"
)

// nodeRecipes are what a real node runs. The kubelet comes from the module of the control plane: one
// version of Kubernetes, and most packages compiled once.
func nodeRecipes() []Recipe {
	kubelet := single("controlplane", kubernetesModule+"/cmd/kubelet", Program{
		Name: Kubelet, Pin: kubernetesModule, VersionArgs: []string{"--version"},
	})
	kubelet.LDFlags = kubernetesLDFlags()

	runtime := single("containerd", ".", Program{
		Name: Containerd, Pin: containerdModule, VersionArgs: []string{"--version"},
	})
	runtime.Programs = append(runtime.Programs, Program{Name: Ctr, Pin: containerdModule, VersionArgs: []string{"--version"}})
	shim := single("containerd", containerdModule+"/cmd/containerd-shim-runc-v2", Program{
		Name: ContainerdShim, Pin: containerdModule, VersionArgs: []string{"-v"},
	})
	for _, r := range []*Recipe{&runtime, &shim} {
		r.LDFlags = []string{"-X " + containerdModule + "/version.Version={version:" + containerdModule + "}"}
		r.Tags = []string{"no_btrfs", "no_devmapper", "no_zfs"} // snapshotters that need C, or that no test uses
	}

	runc := single("runc", runcModule, Program{Name: Runc, Pin: runcModule, VersionArgs: []string{"--version"}})
	runc.Tags = []string{"seccomp"}
	runc.Libraries = []Library{{Name: "libseccomp", Package: "libseccomp-dev"}}

	all := []Recipe{kubelet, runtime, shim, runc}
	for i := range all {
		all[i].OnDemand = true
	}
	return all
}
