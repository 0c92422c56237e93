package toolchain

// The programs of a real node. No recipe of theirs is built unless it is asked for.
const (
	Kubelet        Tool = "kubelet"
	Containerd     Tool = "containerd"
	Ctr            Tool = "ctr"
	ContainerdShim Tool = "containerd-shim-runc-v2"
	Runc           Tool = "runc"
	// CRIU writes the state of containers and makes processes of it.
	CRIU Tool = "criu"
	// PTP and HostLocal are plugins of the container network interface.
	PTP       Tool = "ptp"
	HostLocal Tool = "host-local"
	// MetricsServer serves metrics.k8s.io from what kubelets tell.
	MetricsServer Tool = "metrics-server"
)

const (
	containerdModule = "github.com/containerd/containerd/v2"
	runcModule       = "github.com/opencontainers/runc"
	metricsModule    = "sigs.k8s.io/metrics-server"
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

	metrics := single("metrics", metricsModule+"/cmd/metrics-server", Program{Name: MetricsServer, Pin: metricsModule, VersionArgs: []string{"--version"}})
	metrics.LDFlags = []string{"-X " + clientVersion + ".gitVersion={version:" + metricsModule + "}"}

	all := append([]Recipe{kubelet, runtime, shim, runc, criuRecipe(), metrics}, networkRecipes()...)
	for i := range all {
		all[i].OnDemand = true
	}
	return all
}

const networkModule = "github.com/containernetworking/plugins"

// networkRecipes are what gives pods a network of their own on this machine.
func networkRecipes() []Recipe {
	flags := []string{"-X " + networkModule + "/pkg/utils/buildversion.BuildVersion={version:" + networkModule + "}"}
	all := []Recipe{
		single("cni", networkModule+"/plugins/main/ptp", Program{Name: PTP, Pin: networkModule, VersionArgs: []string{"--version"}}),
		single("cni", networkModule+"/plugins/ipam/host-local", Program{Name: HostLocal, Pin: networkModule, VersionArgs: []string{"--version"}}),
	}
	for i := range all {
		all[i].LDFlags = flags
	}
	return all
}

// criuRecipe is of a later release of Debian's: 3.17 of Debian 12 does not know the kernels of today, and 4.1 of Debian 13
// does not know sockets since Linux 6.16.
func criuRecipe() Recipe {
	recipe := Recipe{Module: "criu", Binary: string(CRIU), Programs: []Program{{Name: CRIU, VersionArgs: []string{"--version"}}}}
	const file = "/pool/main/c/criu/criu_4.2.1.orig.tar.xz"
	recipe.Source = &Source{
		Version: "v4.2.1",
		URLs:    []string{"http://deb.debian.org/debian" + file, "http://snapshot.debian.org/archive/debian/20261115T000000Z" + file},
		SHA256:  "29ec0ee09e296479fe7048c80980e8ef1d0684d0b0204c2b101dfea19f6725b9",
		Make:    []string{"criu"},
		Built:   "criu/criu",
	}
	recipe.Libraries = []Library{
		{Needed: "make", Package: "make"},
		{Needed: "xz", Package: "xz-utils"},
		{Needed: "python3", Package: "python3-minimal"},
		{Needed: "protoc", Package: "protobuf-compiler"},
		{Needed: "protoc-c", Package: "protobuf-c-compiler"},
		{Name: "libprotobuf-c", Package: "libprotobuf-c-dev"},
		{Needed: "/usr/include/google/protobuf/descriptor.proto", Package: "libprotobuf-dev"},
		{Name: "libnl-3.0", Package: "libnl-3-dev"},
		{Name: "libcap", Package: "libcap-dev"},
		{Name: "uuid", Package: "uuid-dev"},
		{Needed: "/usr/include/libnet.h", Package: "libnet1-dev"},
	}
	return recipe
}
