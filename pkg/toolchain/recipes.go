package toolchain

// Tool names one program, as it is called on a command line.
type Tool string

// The programs that the project runs beside its own.
const (
	Etcd                  Tool = "etcd"
	KubeAPIServer         Tool = "kube-apiserver"
	KubeControllerManager Tool = "kube-controller-manager"
	KubeScheduler         Tool = "kube-scheduler"
	Kubectl               Tool = "kubectl"
	Kwok                  Tool = "kwok"
	Helm                  Tool = "helm"
	ControllerGen         Tool = "controller-gen"
	GolangciLint          Tool = "golangci-lint"
	Gotestsum             Tool = "gotestsum"
)

// Program is one tool of a Recipe.
type Program struct {
	Name Tool
	// Pin is the module whose version in the recipe's go.mod is the program's version.
	Pin string
	// VersionArgs make the program print its version.
	VersionArgs []string
	// Exact asks a given program for the very version that is pinned, because its output is
	// committed. Otherwise the same major and minor version fit.
	Exact bool
}

// Recipe tells how one module below tools/ is built, or one program in C.
type Recipe struct {
	// Module is the directory below tools/ and the name of the cache entry. A program in C has no such directory.
	Module string
	// Package is the main package, an import path or ".".
	Package string
	// Binary is the file that the build writes. Programs of another name become links to it.
	Binary string
	// LDFlags are passed to the linker. "{version:M}" stands for the version of module M in
	// the recipe's go.mod, "{major:M}" and "{minor:M}" for its parts.
	LDFlags []string
	// Edit is made to the source of another module, in this build only. Nil means none, and does
	// not change the key of an entry.
	Edit *Edit `json:",omitempty"`
	// Tags are the build's.
	Tags []string `json:",omitempty"`
	// Libraries of C that the programs are linked with; with none they are built without C.
	Libraries []Library `json:",omitempty"`
	// Source is that of a program in C. Nil means that the recipe is a Go module.
	Source *Source `json:",omitempty"`
	// OnDemand programs are provided when they are asked for by name, and are not among all.
	OnDemand bool `json:"-"`
	Programs []Program
}

const (
	kubernetesModule = "k8s.io/kubernetes"
	kwokModule       = "sigs.k8s.io/kwok"
	componentVersion = "k8s.io/component-base/version"
	clientVersion    = "k8s.io/client-go/pkg/version"
)

// DefaultRecipes lists every module below tools/.
func DefaultRecipes() []Recipe {
	return append([]Recipe{
		{
			Module: "controlplane", Package: ".", Binary: "controlplane",
			LDFlags: kubernetesLDFlags(),
			Programs: []Program{
				{Name: Etcd, Pin: "go.etcd.io/etcd/server/v3", VersionArgs: []string{"--version"}},
				{Name: KubeAPIServer, Pin: kubernetesModule, VersionArgs: []string{"--version"}},
				{Name: KubeControllerManager, Pin: kubernetesModule, VersionArgs: []string{"--version"}},
				{Name: KubeScheduler, Pin: kubernetesModule, VersionArgs: []string{"--version"}},
				{Name: Kubectl, Pin: kubernetesModule, VersionArgs: []string{"version", "--client"}},
			},
		},
		kwokRecipe(),
		helmRecipe(),
		single("gen", "sigs.k8s.io/controller-tools/cmd/controller-gen", Program{
			Name: ControllerGen, Pin: "sigs.k8s.io/controller-tools", VersionArgs: []string{"--version"}, Exact: true,
		}),
		single("lint", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint", Program{
			Name: GolangciLint, Pin: "github.com/golangci/golangci-lint/v2", VersionArgs: []string{"version"}, Exact: true,
		}),
		single("unit", "gotest.tools/gotestsum", Program{
			Name: Gotestsum, Pin: "gotest.tools/gotestsum", VersionArgs: []string{"--version"},
		}),
	}, nodeRecipes()...)
}

func single(module, pkg string, program Program) Recipe {
	return Recipe{Module: module, Package: pkg, Binary: string(program.Name), Programs: []Program{program}}
}

// kwokRecipe mends what kwok v0.8 does with the pods of a Node whose lease comes or goes.
func kwokRecipe() Recipe {
	recipe := single("kwok", kwokModule+"/cmd/kwok", Program{
		Name: Kwok, Pin: kwokModule, VersionArgs: []string{"--version"},
	})
	recipe.Edit = &Edit{
		Module: kwokModule, Package: kwokModule + "/pkg/kwok/controllers", File: "controller.go",
		Changes: []Change{nodesBeforePods, leaseBeforePods},
	}
	return recipe
}

// nodesBeforePods starts what plays Nodes before what plays pods. kwok starts them in the order of a
// map: in one start of eight or so, pods come first and never get the function that tells whether
// the Node's lease is held, so that kwok goes on starting and ending the pods of a Node whose lease
// was taken.
var nodesBeforePods = Change{
	Old: `
		for ref, stage := range c.conf.LocalStages {
`,
	New: `
		refs := []internalversion.StageResourceRef{nodeRef}
		for ref := range c.conf.LocalStages {
			if ref != nodeRef {
				refs = append(refs, ref)
			}
		}
		for _, ref := range refs {
			stage, ok := c.conf.LocalStages[ref]
			if !ok {
				continue
			}
`,
}

// leaseBeforePods waits, before a Node's pods are played because its lease has been acquired, until
// the cache of leases tells so. Otherwise they may be passed over as those of another holder, and
// nothing plays them later. The wait ends in case the lease has been taken again.
var leaseBeforePods = Change{
	Old: `
		opt := informer.Option{
			FieldSelector:     fields.OneTermEqualSelector("spec.nodeName", nodeName).String(),
`,
	New: `
		for i := 0; i < 500 && c.readOnlyFunc != nil && c.readOnlyFunc(nodeName); i++ {
			time.Sleep(10 * time.Millisecond)
		}
		opt := informer.Option{
			FieldSelector:     fields.OneTermEqualSelector("spec.nodeName", nodeName).String(),
`,
}

// helmRecipe gives helm its version and that of the Kubernetes it knows: client-go v0.N speaks
// of Kubernetes 1.N. Without it, helm template claims a cluster of version 1.20.
func helmRecipe() Recipe {
	const module = "helm.sh/helm/v3"
	recipe := single("helm", module+"/cmd/helm", Program{
		Name: Helm, Pin: module, VersionArgs: []string{"version", "--short"},
	})
	recipe.LDFlags = []string{"-X " + module + "/internal/version.version={version:" + module + "}"}
	for _, pkg := range []string{module + "/pkg/chartutil", module + "/pkg/lint/rules"} {
		recipe.LDFlags = append(recipe.LDFlags,
			"-X "+pkg+".k8sVersionMajor=1",
			"-X "+pkg+".k8sVersionMinor={minor:k8s.io/client-go}",
		)
	}
	return recipe
}

// kubernetesLDFlags give the components their version: without it the server calls itself
// v0.0.0-master and kubectl cannot parse what it is told.
func kubernetesLDFlags() []string {
	var flags []string
	for _, pkg := range []string{componentVersion, clientVersion} {
		flags = append(flags,
			"-X "+pkg+".gitVersion={version:"+kubernetesModule+"}",
			"-X "+pkg+".gitMajor={major:"+kubernetesModule+"}",
			"-X "+pkg+".gitMinor={minor:"+kubernetesModule+"}",
			"-X "+pkg+".gitCommit=unknown",
			"-X "+pkg+".gitTreeState=clean",
		)
	}
	return flags
}
