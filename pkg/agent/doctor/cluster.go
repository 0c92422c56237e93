package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"sigs.k8s.io/yaml"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Where container runtimes and their plugins listen, in the order of how common they are.
var (
	runtimeSockets = []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/run/cri-dockerd.sock"}
	nriSockets     = []string{"/var/run/nri/nri.sock", "/run/nri/nri.sock"}
)

// firstThere is the first path that is there; what is said of it, or of all.
func (e *exam) firstThere(paths []string) (found bool, saw []Reading) {
	for _, p := range paths {
		there, reading := e.exists(p)
		if there {
			return true, []Reading{reading}
		}
		saw = append(saw, reading)
	}
	return false, saw
}

func (e *exam) runtime() Finding {
	found, saw := e.firstThere(runtimeSockets)
	if !found {
		return note("no container runtime listens here; standalone mode needs none", "start containerd or CRI-O, or mount its socket's directory below --root").saw(saw...)
	}
	return ok("a container runtime listens").saw(saw...)
}

func (e *exam) nri() Finding {
	runtime, _ := e.firstThere(runtimeSockets)
	found, saw := e.firstThere(nriSockets)
	switch {
	case found:
		return ok("core and first budget can be set before a container's first instruction").saw(saw...)
	case !runtime:
		return note("no plugin socket, as there is no runtime", "").saw(saw...)
	}
	return warning("the runtime offers no plugins (NRI): core and budget are set only when the agent sees the container run, and until then SCHED_FIFO may fail in it",
		"containerd (config.toml): [plugins.'io.containerd.nri.v1.nri'] disable = false; CRI-O (crio.conf): [crio.nri] enable_nri = true").saw(saw...)
}

// checkpoint asks whether containerd, and so CRIU which it starts, may set limits of other users' processes.
func (e *exam) checkpoint() Finding {
	pid, set, err := e.h.CapabilitiesOf("containerd")
	saw := Reading{Where: fmt.Sprintf("/proc/%d/status", pid)}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return note("no containerd runs here, or its process is not seen: whether pods can be moved with their memory is not known", "").saw(Reading{"/proc", "no process containerd"})
	case err != nil:
		saw.What = unreadable(err)
		return note("the rights of containerd cannot be read", "").saw(saw)
	case !set.Has(host.CapSysResource):
		saw.What = "containerd has not " + host.CapSysResource.String()
		return warning("CRIU cannot read the limits of processes that run as another user: a pod with such a process is not moved with its memory, its dump fails",
			"run containerd as a service of the system, or give what it runs in "+host.CapSysResource.String()).saw(saw)
	}
	saw.What = "containerd has " + host.CapSysResource.String()
	return ok("CRIU, which containerd starts, may read and set the limits of all processes").saw(saw)
}

const (
	kubeletConfig   = "/var/lib/kubelet/config.yaml"
	cpuManagerState = "/var/lib/kubelet/cpu_manager_state"
)

// cpuManager of the kubelet would move containers between cores behind our back. Its state tells what is in force, its
// settings what a flag may have overruled.
func (e *exam) cpuManager() Finding {
	state, stateSaw := e.read(cpuManagerState)
	settings, settingsSaw := e.read(kubeletConfig)
	if settings != "" {
		settingsSaw.What = "cpuManagerPolicy: " + policyOf(settings)
	}
	policy := policyInForce(state)
	if policy == "" && settings != "" {
		policy = policyOf(settings)
	}
	switch policy {
	case "":
		return note("the kubelet's settings are not here; its CPU manager must have policy none on nodes with real-time work", "").saw(stateSaw, settingsSaw)
	case "none":
		return ok("the kubelet leaves the cores of containers alone").saw(stateSaw, settingsSaw)
	}
	return warning("the kubelet's CPU manager writes the cores of containers too (policy "+policy+"), and takes back what the agent set; the agent would set it again for ever, and report Drifted",
		"set cpuManagerPolicy: none, remove "+cpuManagerState+", restart the kubelet").saw(stateSaw, settingsSaw)
}

// policyInForce reads the kubelet's checkpoint.
func policyInForce(state string) string {
	var checkpoint struct {
		PolicyName string `json:"policyName"`
	}
	if json.Unmarshal([]byte(state), &checkpoint) != nil {
		return ""
	}
	return checkpoint.PolicyName
}

// policyOf reads a KubeletConfiguration; the kubelet's default is none.
func policyOf(settings string) string {
	var config struct {
		Policy string `json:"cpuManagerPolicy"`
	}
	if err := yaml.Unmarshal([]byte(settings), &config); err != nil {
		return "unreadable"
	}
	if config.Policy == "" {
		return "none"
	}
	return config.Policy
}
